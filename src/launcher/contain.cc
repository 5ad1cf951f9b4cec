#include "launcher/contain.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "guest/protocol.h"
#include "launcher/landlock.h"
#include "launcher/mounts.h"
#include "launcher/network.h"
#include "launcher/process.h"
#include "launcher/seccomp.h"
#include "launcher/user.h"

namespace caisson::launcher {
namespace {

constexpr int kFirstFd = 3;
constexpr uint64_t kNeeded = CLONE_NEWNS | CLONE_NEWPID;
constexpr uint64_t kNamespaces =
    kNeeded | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

Attempt<void> MakePair(int type, UniqueFd& one, UniqueFd& other) {
  int pair[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0) return Tried("socketpair");
  one.reset(pair[0]);
  other.reset(pair[1]);
  return {};
}

// How one of the two programs is executed: its descriptors in their order from kFirstFd on, and its
// environment. Made before the clone; afterwards only the pointers are used.
struct ProgramStart {
  const char* command;
  std::vector<int> fds;
  std::vector<std::string> variables;
  std::vector<char*> environment;

  void End() {
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
  }

  void Pass(std::string_view name, int fd) {
    int number = kFirstFd + static_cast<int>(fds.size());
    variables.push_back(std::string(name) + "=" + std::to_string(number));
    fds.push_back(fd);
  }
};

ProgramStart GuestStart(const Containment& c, int sync, int spawner) {
  ProgramStart start{"serve", {}, c.plan->environment, {}};
  start.Pass(guest::kEnvListenFd, c.given[kFdListen].get());
  start.Pass(guest::kEnvTokenFd, c.given[kFdToken].get());
  start.Pass(guest::kEnvConfigFd, c.given[kFdConfig].get());
  start.Pass(guest::kEnvSpawnerFd, spawner);
  start.Pass(guest::kEnvSyncFd, sync);
  if (c.cgroups->delegated) start.Pass(guest::kEnvCgroupFd, c.cgroups->delegated.get());
  if (c.cgroups->memory_events) start.Pass(guest::kEnvMemEventsFd, c.cgroups->memory_events.get());
  start.End();
  return start;
}

ProgramStart SpawnerStart(const Containment& c, int socket) {
  ProgramStart start{"spawn", {}, c.plan->environment, {}};
  start.Pass(guest::kEnvConfigFd, c.given[kFdConfig].get());
  start.Pass(guest::kEnvFilterFd, c.given[kFdFilter].get());
  start.Pass(guest::kEnvSpawnerFd, socket);
  start.End();
  return start;
}

// The child, and from ForkSpawner() on its child too. Between clone and exec: system calls only, no
// heap, no locks.
class Child {
 public:
  Child(const Containment& containment, const ProgramStart& guest, const ProgramStart& spawner,
        int sync)
      : c_(containment), plan_(*containment.plan), start_(&guest), spawner_(spawner), sync_(sync) {}

  [[noreturn]] void Run() {
    umask(0);
    sysctl_.reset(open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC));
    ShedInherited();
    ContainTrouble report;
    if (Attempt<void> ended = Steps(); !ended) report = {step_, ended.error()};
    iovec parts[2] = {{const_cast<char*>(&kSyncTrouble), 1}, {&report, sizeof report}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    sendmsg(sync_, &message, MSG_NOSIGNAL);
    _exit(1);
  }

 private:
  Attempt<void> Steps() {
    if (plan_.user_namespace_first)
      CAISSON_TRY(Step(LaunchStep::kUserMapEarly, &Child::AskForMaps));
    CAISSON_TRY(Step(LaunchStep::kCgroupGuest, &Child::JoinGuestCgroups));
    if ((plan_.namespaces & CLONE_NEWNET) != 0) {
      CAISSON_TRY(Step(LaunchStep::kNetwork, &Child::Network));
    }
    CAISSON_TRY(Step(LaunchStep::kMounts, &Child::Mounts));
    CAISSON_TRY(Step(LaunchStep::kPivot, &Child::Pivot));
    CAISSON_TRY(Step(LaunchStep::kHostname, &Child::Hostname));
    if (!plan_.user_namespace_first) {
      CAISSON_TRY(Step(LaunchStep::kUserNamespace, &Child::UserNamespaceLast));
    }
    CAISSON_TRY(Step(LaunchStep::kLandlock, &Child::Landlock));
    CAISSON_TRY(Step(LaunchStep::kSpawner, &Child::ForkSpawner));
    CAISSON_TRY(Step(LaunchStep::kIdentity, &Child::Identity));
    CAISSON_TRY(Step(LaunchStep::kLimits, &Child::Limits));
    CAISSON_TRY(Step(LaunchStep::kCapabilities, &Child::Capabilities));
    CAISSON_TRY(Step(LaunchStep::kSeccomp, &Child::Seccomp));
    return Step(LaunchStep::kExecGuest, &Child::Execute);
  }

  Attempt<void> Step(LaunchStep step, Attempt<void> (Child::*work)()) {
    step_ = step;
    CAISSON_TRY((this->*work)());
    Mark(step);
    return {};
  }

  // The clock is the guest's; its spawner goes the same way beside it.
  void Mark(LaunchStep step) {
    if (start_ != &spawner_) c_.clock->Mark(step);
  }

  // What the launcher has for itself or from the server, and a sandbox must not have.
  void ShedInherited() {
    for (int number : kIgnoredSignals) signal(number, SIG_DFL);
    // A server that the out-of-memory killer spares must not pass that on: with nobody to kill, a
    // sandbox at its memory limit would hang.
    UniqueFd score(open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
    char sign = 0;
    if (score && read(score.get(), &sign, 1) == 1 && sign == '-') {
      static_cast<void>(!pwrite(score.get(), "0", 1, 0));
    }
  }

  Attempt<void> AskForMaps() {
    char letter = kSyncMaps;
    if (write(sync_, &letter, 1) != 1) return Tried("ask for id maps");
    ssize_t got = read(sync_, &letter, 1);
    if (got < 0) return Tried("wait for id maps");
    if (got == 0) _exit(1);  // the launcher is gone; nobody wants this sandbox
    ForbidNested();
    return {};
  }

  // No user namespace below the new one: the outer filter lets the guest use clone3, whose flags no
  // filter sees. Best effort, one wall of several: where /proc/sys is read-only it stays as it is.
  void ForbidNested() {
    UniqueFd limit(openat(sysctl_.get(), "user/max_user_namespaces", O_WRONLY | O_CLOEXEC));
    if (limit) static_cast<void>(!write(limit.get(), "0", 1));
    sysctl_.reset();
  }

  Attempt<void> JoinGuestCgroups() { return Join(c_.cgroups->guest, "join guest cgroup"); }

  Attempt<void> Join(const CgroupPlace& place, const char* what) {
    for (const UniqueFd& tasks : place.join) {
      if (write(tasks.get(), "0", 1) < 0) return Tried(what);
    }
    // Only now, so that the namespace's root is this cgroup and nothing above shows.
    if ((plan_.namespaces & CLONE_NEWCGROUP) != 0 && syscall(SYS_unshare, CLONE_NEWCGROUP) < 0) {
      return Tried("unshare", "cgroup namespace");
    }
    return {};
  }

  Attempt<void> Network() {
    if (c_.network < 0) return LoopbackUp();
    if (syscall(SYS_setns, c_.network, CLONE_NEWNET) < 0)
      return Tried("enter", "network namespace");
    return {};
  }

  Attempt<void> Mounts() {
    CAISSON_ASSIGN(root_, BuildRoot(plan_));
    return {};
  }

  Attempt<void> Pivot() {
    CAISSON_TRY(PivotTo(root_.get()));
    root_.reset();
    return {};
  }

  Attempt<void> Hostname() {
    if ((plan_.namespaces & CLONE_NEWUTS) == 0 || plan_.hostname.empty()) return {};
    if (sethostname(plan_.hostname.data(), plan_.hostname.size()) < 0) return Tried("sethostname");
    return {};
  }

  Attempt<void> UserNamespaceLast() {
    if (syscall(SYS_unshare, CLONE_NEWUSER) < 0) return Tried("unshare", "user namespace");
    return AskForMaps();
  }

  // Here this process may still put another anywhere, and all that they share is made.
  Attempt<void> ForkSpawner() {
    clone_args arguments{};
    arguments.exit_signal = SIGCHLD;
    if (c_.cgroups->command.into) {
      arguments.flags |= CLONE_INTO_CGROUP;
      arguments.cgroup = static_cast<uint64_t>(c_.cgroups->command.into.get());
    }
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid < 0) return Tried("clone3", "spawner");
    if (pid > 0) return {};
    start_ = &spawner_;
    return Join(c_.cgroups->command, "join command cgroup");
  }

  Attempt<void> Identity() {
    CAISSON_TRY(TakeIdentity(plan_));
    if (!plan_.die_with_launcher) return {};
    // After the change of identity, which clears it.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) return Tried("parent death signal");
    pollfd launcher{c_.launcher_pidfd, POLLIN, 0};
    if (poll(&launcher, 1, 0) != 0) _exit(1);  // it died before the signal was set
    return {};
  }

  Attempt<void> Limits() { return SetLimits(plan_); }
  Attempt<void> Capabilities() { return DropCapabilities(plan_); }
  Attempt<void> Landlock() {
    return ApplyLandlock(plan_, c_.given[kFdGuest].get(), c_.cgroups->delegated.get());
  }
  Attempt<void> Seccomp() { return LoadFilter(plan_.outer_filter); }

  Attempt<void> Execute() {
    // The step's own mark comes before it: after a successful exec nobody is here to set it.
    Mark(LaunchStep::kExecGuest);
    umask(022);
    for (int fd = 0; fd < kFirstFd; fd++) {
      if (dup2(c_.null_fd, fd) < 0) return Tried("dup", "null");
    }
    int next = kFirstFd;
    for (int fd : start_->fds) {
      if (dup2(fd, next++) < 0) return Tried("dup", "guest descriptor");
    }
    // For a report of what fails now; the guest has its own copy among the above.
    int report = next++;
    if (dup3(sync_, report, O_CLOEXEC) < 0) return Tried("dup", "sync socket");
    sync_ = report;
    int program = next++;
    if (dup3(c_.given[kFdGuest].get(), program, O_CLOEXEC) < 0)
      return Tried("dup", "guest program");
    if (syscall(SYS_close_range, next, ~0u, 0) < 0) return Tried("close_range");
    syscall(SYS_setsid);
    const char* arguments[] = {"caisson-guest", start_->command, nullptr};
    syscall(SYS_execveat, program, "", arguments, start_->environment.data(), AT_EMPTY_PATH);
    return Tried("execute", "caisson-guest");
  }

  const Containment& c_;
  const LaunchPlan& plan_;
  const ProgramStart* start_;  // the guest's; in the spawner, `spawner_`
  const ProgramStart& spawner_;
  int sync_;
  UniqueFd root_;
  UniqueFd sysctl_;  // the host's /proc/sys, until the user namespace is there
  LaunchStep step_ = LaunchStep::kClone;
};

}  // namespace

StepClock::StepClock(uint64_t start_us) : start_us_(start_us) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  step_us_ = page == MAP_FAILED ? nullptr : static_cast<uint32_t*>(page);
}
StepClock::~StepClock() {
  if (step_us_ != nullptr) munmap(step_us_, 4096);
}
void StepClock::Mark(LaunchStep step) {
  if (step_us_ == nullptr) return;
  auto passed = static_cast<uint32_t>(NowUs() - start_us_);
  __atomic_store_n(&step_us_[static_cast<size_t>(step)], passed, __ATOMIC_RELAXED);
}
LaunchStep StepClock::Current() const {
  size_t last = static_cast<size_t>(LaunchStep::kClone);
  for (size_t i = last; step_us_ != nullptr && i < kLaunchStepNames.size(); i++) {
    if (__atomic_load_n(&step_us_[i], __ATOMIC_RELAXED) != 0) last = i;
  }
  size_t next = last + 1 < kLaunchStepNames.size() ? last + 1 : last;
  return static_cast<LaunchStep>(next);
}
void StepClock::CopyTo(uint32_t (&step_us)[kLaunchStepNames.size()]) const {
  for (size_t i = 0; step_us_ != nullptr && i < kLaunchStepNames.size(); i++) {
    step_us[i] = __atomic_load_n(&step_us_[i], __ATOMIC_RELAXED);
  }
}

Attempt<NewProcess> StartContained(const Containment& containment) {
  const LaunchPlan& plan = *containment.plan;
  // Without a mount namespace the steps would change the host; without maps the guest would be root
  // on it. Other flags (CLONE_VM) would share the launcher with the child.
  if ((plan.namespaces & ~kNamespaces) != 0 || (plan.namespaces & kNeeded) != kNeeded ||
      plan.uid_map.empty() || plan.gid_map.empty()) {
    return Tried("namespaces or id maps of the plan", "", "", EINVAL);
  }
  NewProcess made;
  UniqueFd theirs;
  UniqueFd spawner[2];
  CAISSON_TRY(MakePair(SOCK_STREAM, made.sync, theirs));
  CAISSON_TRY(MakePair(SOCK_SEQPACKET, spawner[0], spawner[1]));
  if (fcntl(made.sync.get(), F_SETFL, O_NONBLOCK) < 0) return Tried("fcntl");
  ProgramStart guest_start = GuestStart(containment, theirs.get(), spawner[0].get());
  ProgramStart spawner_start = SpawnerStart(containment, spawner[1].get());

  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = (plan.namespaces & ~uint64_t{CLONE_NEWCGROUP}) | CLONE_PIDFD;
  if (containment.network >= 0) arguments.flags &= ~uint64_t{CLONE_NEWNET};
  if (plan.user_namespace_first) arguments.flags |= CLONE_NEWUSER;
  arguments.pidfd = reinterpret_cast<uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  if (containment.cgroups->guest.into) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<uint64_t>(containment.cgroups->guest.into.get());
  }
  long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return Tried("clone3");
  if (pid == 0) Child(containment, guest_start, spawner_start, theirs.get()).Run();
  made.pid = static_cast<int>(pid);
  made.pidfd.reset(pidfd);
  return made;
}

}  // namespace caisson::launcher
