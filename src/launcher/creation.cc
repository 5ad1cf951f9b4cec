// Creations, as the launcher sees them: prepared, listened to, finished or failed.
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "guest/protocol.h"
#include "launcher/cgroups.h"
#include "launcher/process.h"
#include "launcher/server.h"
#include "launcher/user.h"

namespace caisson::launcher {
namespace {

constexpr int64_t kFailedReplyMs =
    2'000;                              // how long a failed creation's reply waits for the clean-up
constexpr size_t kMaxGuestWords = 400;  // of the guest's own reason for failing

Attempt<LaunchPlan> ReadPlan(int fd) {
  struct stat info{};
  if (fstat(fd, &info) < 0) return Tried("read", "launch plan");
  // A longer one is refused by its length.
  std::string bytes(std::min<size_t>(static_cast<size_t>(info.st_size), kMaxPlanBytes + 1), '\0');
  ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  if (got < 0) return Tried("read", "launch plan");
  bytes.resize(static_cast<size_t>(got));
  Result<LaunchPlan> plan = DecodePlan(bytes);
  if (!plan) return Tried(plan.error().message.c_str(), "", "", EINVAL);
  return std::move(plan).value();
}

}  // namespace

void Server::Create(const Request& request, UniqueFd (&fds)[kCreateFdCount]) {
  Creation creation;
  creation.request = request;
  creation.clock = std::make_unique<StepClock>(NowUs());
  creation.deadline_ms = DeadlineOf(request);
  for (size_t i = 0; i < kCreateFdCount; i++) creation.fds[i] = std::move(fds[i]);
  LaunchStep step = LaunchStep::kDecodePlan;
  if (Attempt<void> prepared = Prepare(creation, step); !prepared) {
    return FailCreation(std::move(creation), step, prepared.error());
  }
  uint64_t key = next_key_++;
  Add(creation.process.sync.get(), Watch::kSync, key);
  creations_.emplace(key, std::move(creation));
}

Attempt<void> Server::Prepare(Creation& creation, LaunchStep& step) {
  for (const UniqueFd& fd : creation.fds) {
    if (!fd) return Tried("descriptors of the request", "", "", EBADF);
  }
  CAISSON_ASSIGN(creation.plan, ReadPlan(creation.fds[kFdPlan].get()));
  creation.clock->Mark(step);
  step = LaunchStep::kCgroups;
  CAISSON_ASSIGN(CgroupHandles cgroups, MakeCgroups(creation.plan, creation.cgroups));
  creation.clock->Mark(step);
  step = LaunchStep::kClone;
  // One of the pool belongs to this process's user namespace, as the new one would.
  bool pooled =
      !creation.plan.user_namespace_first && (creation.plan.namespaces & CLONE_NEWNET) != 0;
  UniqueFd network = pooled ? networks_.Take() : UniqueFd();
  Containment containment{&creation.plan,       creation.fds,       &cgroups,        network.get(),
                          creation.clock.get(), options_.own_pidfd, options_.null_fd};
  CAISSON_ASSIGN(creation.process, StartContained(containment));
  creation.clock->Mark(step);
  creation.start_time = StartTimeOf(creation.process.pid);
  for (UniqueFd& fd : creation.fds) fd.reset();
  return {};
}

void Server::OnSync(uint64_t key) {
  auto found = creations_.find(key);
  if (found == creations_.end()) return;
  Creation& creation = found->second;
  char buffer[1024];
  bool closed = false;
  for (;;) {
    ssize_t got = read(creation.process.sync.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    closed = got <= 0;
    if (closed) break;
    creation.heard.append(buffer, static_cast<size_t>(got));
    if (creation.heard.size() > 2 * sizeof buffer) break;
  }
  LaunchStep step = creation.clock->Current();
  bool ready = false;
  Attempt<void> heard = Hear(creation, step, closed, ready);
  if (!heard) {
    Creation failed = std::move(creation);
    creations_.erase(found);
    return FailCreation(std::move(failed), step, heard.error());
  }
  if (ready) Finish(key);
}

Attempt<void> Server::Hear(Creation& creation, LaunchStep& step, bool closed, bool& ready) {
  std::string& heard = creation.heard;
  auto answer = [&](char letter) -> Attempt<void> {
    if (send(creation.process.sync.get(), &letter, 1, MSG_NOSIGNAL) == 1) return {};
    return Tried("answer the new process");
  };
  while (!heard.empty()) {
    char letter = heard[0];
    if (letter == kSyncTrouble) {
      ContainTrouble report;
      if (heard.size() < 1 + sizeof report) break;
      memcpy(&report, heard.data() + 1, sizeof report);
      step = report.step;
      return std::unexpected(report.trouble);
    }
    if (letter == guest::kSyncFailed) {
      if (!closed && heard.find('\n') == heard.npos && heard.size() < kMaxGuestWords) break;
      step = LaunchStep::kGuestReady;
      std::string words = heard.substr(1, heard.find('\n') - 1);
      return Tried("guest:", words.c_str(), "", EPROTO);
    }
    heard.erase(0, 1);
    if (letter == kSyncMaps) {
      CAISSON_TRY(WriteIdMaps(creation.plan, creation.process.pid));
      CAISSON_TRY(answer(kSyncMaps));
    } else if (letter == guest::kSyncReady) {
      creation.clock->Mark(LaunchStep::kGuestReady);
      ready = true;
      return {};
    } else {
      return Tried("unexpected letter from the guest", "", "", EPROTO);
    }
  }
  if (closed) return Tried("the new process ended", "", "", ECHILD);
  return {};
}

void Server::Finish(uint64_t key) {
  auto found = creations_.find(key);
  Creation creation = std::move(found->second);
  creations_.erase(found);
  Drop(creation.process.sync.get());
  Reply reply;
  reply.id = creation.request.id;
  reply.pid = creation.process.pid;
  reply.start_time = creation.start_time;
  creation.clock->CopyTo(reply.step_us);
  Send(reply, {}, UniqueFd(fcntl(creation.process.pidfd.get(), F_DUPFD_CLOEXEC, 0)));
  Add(creation.process.pidfd.get(), Watch::kSandbox, key);
  sandboxes_.emplace(key, Sandbox{creation.process.pid, creation.start_time,
                                  std::move(creation.process.pidfd), std::move(creation.cgroups)});
}

void Server::FailCreation(Creation creation, LaunchStep step, const Trouble& trouble) {
  Drop(creation.process.sync.get());
  creation.process.sync.reset();
  auto ending = std::make_unique<Ending>(std::move(creation.process.pidfd),
                                         std::move(creation.cgroups), NowMs() + kFailedReplyMs);
  ending->endless = true;
  ending->reply.id = creation.request.id;
  ending->reply.status = Status::kFailed;
  ending->reply.step = step;
  ending->reply.error_number = trouble.error_number;
  creation.clock->CopyTo(ending->reply.step_us);
  ending->text = trouble.text;
  AddEnding(std::move(ending));
}

}  // namespace caisson::launcher
