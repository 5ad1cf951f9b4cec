#include "launcher/server.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/fd_passing.h"
#include "launcher/process.h"
#include "launcher/remove_tree.h"

namespace caisson::launcher {
namespace {

std::vector<std::string> SplitPaths(std::string_view text) {
  std::vector<std::string> paths;
  while (!text.empty()) {
    size_t end = std::min(text.find('\0'), text.size());
    if (end > 0) paths.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return paths;
}

}  // namespace

Attempt<void> Server::Run() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_ || !Add(kControlFd, Watch::kControl, 0)) return Tried("epoll");
  while (!closed_ || !endings_.empty() || !removals_.empty()) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, TimeoutMs());
    if (count < 0 && errno != EINTR) return Tried("epoll_wait");
    for (int i = 0; i < count; i++) {
      uint64_t data = events[i].data.u64;
      OnEvent(static_cast<Watch>(data & 7), data >> 3, events[i].events);
    }
    OnTime();
  }
  return {};
}

int64_t Server::DeadlineOf(const Request& request) {
  return NowMs() + (request.deadline_ms == 0 ? kDefaultDeadlineMs : request.deadline_ms);
}

bool Server::Add(int fd, Watch kind, uint64_t key) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key << 3 | static_cast<uint64_t>(kind);
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// By name and not by closing: a copy of the descriptor may live on for a moment in a child that has
// not executed the guest yet, and would keep reporting.
void Server::Drop(int fd) {
  if (fd >= 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

int Server::TimeoutMs() const {
  int64_t next = INT64_MAX;
  for (const auto& [key, creation] : creations_) next = std::min(next, creation.deadline_ms);
  for (const auto& [key, removal] : removals_) {
    if (!removal.replied) next = std::min(next, removal.deadline_ms);
  }
  for (const auto& [key, ending] : endings_) {
    if (!ending->replied || closed_) next = std::min(next, ending->deadline_ms());
    next = std::min(next, ending->next_try_ms());
  }
  if (next == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<int64_t>(next - NowMs(), 0, 60'000));
}

void Server::OnTime() {
  int64_t now = NowMs();
  for (auto at = creations_.begin(); at != creations_.end();) {
    auto current = at++;
    if (current->second.deadline_ms > now) continue;
    Creation late = std::move(current->second);
    creations_.erase(current);
    LaunchStep step = late.clock->Current();
    FailCreation(std::move(late), step,
                 Tried("not done before the deadline", "", "", ETIMEDOUT).error());
  }
  for (auto& [key, removal] : removals_) {
    if (removal.replied || removal.deadline_ms > now) continue;
    removal.replied = true;
    Reply reply;
    reply.id = removal.request.id;
    reply.status = Status::kPending;
    Send(reply, removal.path);
  }
  for (auto at = endings_.begin(); at != endings_.end();) {
    uint64_t key = (at++)->first;  // AdvanceEnding may erase it
    AdvanceEnding(key);
  }
}

void Server::OnEvent(Watch kind, uint64_t key, uint32_t events) {
  switch (kind) {
    case Watch::kControl:
      if ((events & EPOLLOUT) != 0) Flush();
      if ((events & ~uint32_t{EPOLLOUT}) != 0) ReceiveRequests();
      return;
    case Watch::kSync:
      OnSync(key);
      return;
    case Watch::kSandbox: {
      auto found = sandboxes_.find(key);
      if (found == sandboxes_.end()) return;
      Drop(found->second.pidfd.get());
      Reap(found->second.pidfd.get());
      found->second.pidfd.reset();
      // Its cgroups are removed when the server asks; only for `ephemeral` must they be remembered.
      if (!options_.ephemeral) sandboxes_.erase(found);
      return;
    }
    case Watch::kEnding: {
      auto found = endings_.find(key);
      if (found == endings_.end()) return;
      Drop(found->second->pidfd());
      found->second->OnExit();
      return;  // OnTime() goes on with it
    }
    case Watch::kRemoval:
      OnRemoved(key);
      return;
  }
}

void Server::ReceiveRequests() {
  static char buffer[kMaxMessageBytes];
  for (int round = 0; round < 16 && !closed_; round++) {
    iovec part{buffer, sizeof buffer};
    UniqueFd fds[kCreateFdCount];
    ReceivedMessage received = ReceiveWithFds(kControlFd, {&part, 1}, fds, MSG_DONTWAIT);
    if (received.size < 0 && errno == EAGAIN) return;
    if (received.size <= 0) return OnControlClosed();
    Request request;
    auto size = static_cast<size_t>(received.size);
    bool whole = size >= sizeof request && received.whole;
    if (size >= sizeof request) memcpy(&request, buffer, sizeof request);
    if (!whole || request.text_bytes != size - sizeof request) {
      Reply reply;
      reply.id = request.id;
      reply.status = Status::kFailed;
      reply.error_number = EMSGSIZE;
      Send(reply, "request of a wrong size");
      continue;
    }
    Handle(request, std::string(buffer + sizeof request, request.text_bytes), fds);
  }
}

void Server::Handle(const Request& request, std::string text, UniqueFd (&fds)[kCreateFdCount]) {
  Reply reply;
  reply.id = request.id;
  switch (request.op) {
    case Op::kHello:
      reply.value = kProtocolVersion;
      return Send(reply, {});
    case Op::kCreate:
      return Create(request, fds);
    case Op::kTerminate:
      return Terminate(request, text);
    case Op::kFind:
      return Find(request);
    case Op::kRemoveTree:
      return Remove(request, std::move(text));
  }
  reply.status = Status::kFailed;
  reply.error_number = ENOSYS;
  Send(reply, "unknown operation");
}

void Server::Terminate(const Request& request, std::string_view text) {
  UniqueFd pidfd;
  std::vector<std::string> cgroups = SplitPaths(text);
  auto found = std::ranges::find_if(sandboxes_, [&](const auto& entry) {
    return entry.second.pid == request.pid && entry.second.start_time == request.start_time;
  });
  if (found != sandboxes_.end()) {
    Drop(found->second.pidfd.get());
    pidfd = std::move(found->second.pidfd);
    if (cgroups.empty()) cgroups = std::move(found->second.cgroups);
    sandboxes_.erase(found);
  } else {
    pidfd = OpenProcess(request.pid, request.start_time);
  }
  auto ending = std::make_unique<Ending>(std::move(pidfd), std::move(cgroups), DeadlineOf(request));
  ending->reply.id = request.id;
  ending->reply.pid = request.pid;
  ending->reply.start_time = request.start_time;
  AddEnding(std::move(ending));
}

void Server::AddEnding(std::unique_ptr<Ending> ending) {
  uint64_t key = next_key_++;
  if (ending->pidfd() >= 0) Add(ending->pidfd(), Watch::kEnding, key);
  endings_.emplace(key, std::move(ending));  // the next OnTime() tries it
}

void Server::AdvanceEnding(uint64_t key) {
  Ending& ending = *endings_.at(key);
  int64_t now = NowMs();
  bool gone = false;
  if (ending.next_try_ms() <= now) gone = ending.Advance();
  bool late = now >= ending.deadline_ms();
  if (!gone && !late) return;
  if (!ending.replied) {
    ending.replied = true;
    int status = ending.exit_status();
    if (ending.reply.status == Status::kFailed && status > 0 && status < 256 && status != SIGKILL) {
      ending.text += " (killed by signal " + std::to_string(status) + ")";
    }
    if (!gone && ending.reply.status == Status::kOk) {
      ending.reply.status = Status::kPending;
      ending.reply.error_number = ending.last_error();
    }
    Send(ending.reply, ending.text);
  }
  // While the process lives it stays watched: it may be a child that only the launcher can reap.
  bool watched = ending.endless || ending.pidfd() >= 0;
  if (gone || !watched || closed_) {
    Drop(ending.pidfd());
    endings_.erase(key);
  }
}

void Server::Find(const Request& request) {
  Reply reply;
  reply.id = request.id;
  reply.pid = request.pid;
  reply.start_time = request.start_time;
  UniqueFd pidfd = OpenProcess(request.pid, request.start_time);
  // A pidfd is readable when its process has ended and only waits to be reaped.
  pollfd state{pidfd.get(), POLLIN, 0};
  if (pidfd && poll(&state, 1, 0) != 0) pidfd.reset();
  if (!pidfd) reply.status = Status::kGone;
  Send(reply, {}, std::move(pidfd));
}

void Server::Remove(const Request& request, std::string path) {
  // In a process of its own: a large tree takes seconds, and creations must not wait for it.
  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) {
    int base = dup2(options_.state_dir, 0);
    syscall(SYS_close_range, 1u, ~0u, 0);
    Attempt<void> removed = RemoveTree(base, path);
    _exit(removed ? 0 : std::min(removed.error().error_number, 255));
  }
  if (pid < 0) {
    Reply reply;
    reply.id = request.id;
    reply.status = Status::kFailed;
    reply.error_number = errno;
    return Send(reply, "start the removal");
  }
  uint64_t key = next_key_++;
  Add(pidfd, Watch::kRemoval, key);
  removals_.emplace(key, Removal{request, UniqueFd(pidfd), std::move(path), DeadlineOf(request)});
}

void Server::OnRemoved(uint64_t key) {
  auto found = removals_.find(key);
  if (found == removals_.end()) return;
  Removal removal = std::move(found->second);
  removals_.erase(found);
  Drop(removal.pidfd.get());
  int status = Reap(removal.pidfd.get());
  if (removal.replied) return;
  Reply reply;
  reply.id = removal.request.id;
  if (status != 256) {
    reply.status = Status::kFailed;
    reply.error_number = status > 256 ? status - 256 : EINTR;
  }
  Send(reply, status == 256 ? std::string() : "remove " + removal.path);
}

void Server::OnControlClosed() {
  closed_ = true;
  Drop(kControlFd);
  // The server never learnt of what was still being made.
  std::map<uint64_t, Creation> unfinished = std::move(creations_);
  creations_.clear();
  for (auto& [key, creation] : unfinished) {
    LaunchStep step = creation.clock->Current();
    FailCreation(std::move(creation), step, Trouble{});
  }
  if (!options_.ephemeral) return;
  for (auto& [key, sandbox] : sandboxes_) {
    Drop(sandbox.pidfd.get());
    AddEnding(std::make_unique<Ending>(std::move(sandbox.pidfd), std::move(sandbox.cgroups),
                                       NowMs() + kDefaultDeadlineMs));
  }
  sandboxes_.clear();
}

void Server::Send(Reply reply, std::string_view text, UniqueFd fd) {
  if (closed_) return;
  reply.text_bytes = static_cast<uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&reply), sizeof reply);
  bytes += text;
  outgoing_.push_back({std::move(bytes), std::move(fd)});
  if (outgoing_.size() == 1) Flush();
}

void Server::Flush() {
  while (!outgoing_.empty()) {
    Outgoing& next = outgoing_.front();
    iovec part{next.bytes.data(), next.bytes.size()};
    int fd = next.fd.get();
    std::span<const int> fds(&fd, next.fd ? 1 : 0);
    if (SendWithFds(kControlFd, {&part, 1}, fds, MSG_DONTWAIT) < 0 && errno == EAGAIN) break;
    outgoing_.pop_front();  // sent, or nobody is there any more
  }
  epoll_event event{};
  event.events = outgoing_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  event.data.u64 = static_cast<uint64_t>(Watch::kControl);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, kControlFd, &event);
}

}  // namespace caisson::launcher
