#include "guest/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/syscall.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxAnswerBytes = 64 * 1024 * 1024;

// [u8 kind: 0 reply, 1 reply with meta, 2 error] [u32 code] [u32 size of the first text] both
// texts.
std::string EncodeResult(const FileResult& result) {
  std::string head;
  uint32_t code = 0;
  std::string_view first;
  std::string_view second;
  char kind = 0;
  if (!result) {
    kind = 2;
    code = static_cast<uint32_t>(result.error().code);
    first = result.error().cause;
    second = result.error().message;
  } else {
    kind = result->meta ? 1 : 0;
    if (result->meta) first = *result->meta;
    second = result->body;
  }
  auto size = static_cast<uint32_t>(first.size());
  head += kind;
  head.append(reinterpret_cast<const char*>(&code), sizeof code);
  head.append(reinterpret_cast<const char*>(&size), sizeof size);
  head += first;
  head += second;
  return head;
}

bool DecodeResult(std::string_view text, FileResult& result) {
  uint32_t code = 0;
  uint32_t size = 0;
  constexpr size_t kHead = 1 + sizeof code + sizeof size;
  if (text.size() < kHead) return false;
  char kind = text[0];
  std::memcpy(&code, text.data() + 1, sizeof code);
  std::memcpy(&size, text.data() + 1 + sizeof code, sizeof size);
  size_t codes = 0;
  ErrorCodeTable(codes);
  if (size > text.size() - kHead || kind > 2 || code >= codes) return false;
  std::string first(text.substr(kHead, size));
  std::string second(text.substr(kHead + size));
  if (kind == 2) {
    result = Fail(static_cast<ErrorCode>(code), std::move(second), std::move(first));
  } else {
    result =
        FileReply{std::move(second), kind == 1 ? std::optional(std::move(first)) : std::nullopt};
  }
  return true;
}

// The child keeps these alone: held sockets would keep streams alive that the guest has closed.
void CloseAllBut(std::vector<int> keep) {
  std::sort(keep.begin(), keep.end());
  auto close_range = [](int first, int last) {
    if (first > last) return;
    if (::syscall(SYS_close_range, first, last, 0) == 0) return;
    for (int fd = first; fd <= std::min(last, 4096); fd++) ::close(fd);
  };
  int next = 0;
  for (int fd : keep) {
    close_range(next, fd - 1);
    next = fd + 1;
  }
  close_range(next, INT32_MAX);
}

}  // namespace

Result<void> Workers::Start(int64_t deadline_ms, std::vector<int> keep, const Job& job, Done done,
                            Authority authority) {
  CAISSON_ASSIGN(Pipe pipe, MakePipe());
  pid_t pid = ::fork();
  if (pid < 0) return Fail(ErrorCode::kOverloaded, "no worker can be started", ErrnoName(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::prctl(PR_SET_NAME, "caisson-work", 0, 0, 0);
    keep.push_back(pipe.write.get());
    CloseAllBut(std::move(keep));
    if (authority == Authority::kUser && !identity_.BecomeForGood()) ::_exit(1);
    // A change of ids clears the parent-death signal.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)WriteAll(pipe.write.get(), EncodeResult(job()) + '.');
    ::_exit(0);
  }
  pipe.write.reset();
  ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  uint64_t id = next_++;
  auto running = std::make_unique<Running>();
  running->pid = pid;
  running->done = std::move(done);
  running->pipe = std::move(pipe.read);
  running->timer = loop_.After(std::max<int64_t>(deadline_ms - MonotonicMs(), 1), [this, id] {
    Running& late = *running_.at(id);
    late.timed_out = true;
    ::kill(late.pid, SIGKILL);
    Finish(id);
  });
  int fd = running->pipe.get();
  running_.emplace(id, std::move(running));
  children_.Watch(pid, [](const ChildEnd&) {});
  auto watched = loop_.Watch(fd, EPOLLIN, [this, id](uint32_t) { OnReadable(id); });
  if (!watched) {
    ::kill(pid, SIGKILL);
    loop_.Defer([this, id] { Finish(id); });
  }
  return {};
}

void Workers::OnReadable(uint64_t id) {
  Running& worker = *running_.at(id);
  char buffer[64 * 1024];
  ssize_t got = ::read(worker.pipe.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    worker.answer.append(buffer, static_cast<size_t>(got));
    if (worker.answer.size() <= kMaxAnswerBytes) return;
    ::kill(worker.pid, SIGKILL);
    worker.answer.clear();
  }
  Finish(id);
}

void Workers::Finish(uint64_t id) {
  auto node = running_.extract(id);
  if (node.empty()) return;
  Running& worker = *node.mapped();
  loop_.Cancel(worker.timer);
  loop_.Forget(worker.pipe.get());
  FileResult result = Fail(ErrorCode::kIo, "the worker ended without an answer");
  WorkerFate fate = WorkerFate::kDied;
  // The last byte says that the answer is whole.
  if (worker.timed_out) {
    fate = WorkerFate::kDeadline;
    result = Fail(ErrorCode::kDeadlineExceeded, "the call did not end by its deadline");
  } else if (worker.answer.ends_with('.') &&
             DecodeResult(std::string_view(worker.answer).substr(0, worker.answer.size() - 1),
                          result)) {
    fate = WorkerFate::kAnswered;
  }
  worker.done(fate, std::move(result));
}

}  // namespace caisson::guest
