#include "guest/launch.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// The child may run in the caller's memory (as after vfork) where its stack can be switched in a
// few instructions. Sanitizers cannot follow that.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAISSON_SANITIZED 1
#endif
#endif
#if defined(__x86_64__) && !defined(CAISSON_SANITIZED)
#define CAISSON_SHARED_MEMORY_CHILD 1
#endif

namespace caisson::guest {
namespace {

// struct clone_args of Linux 5.7; glibc and kernel headers disagree about who defines it.
struct CloneArgs {
  uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
      set_tid_size, cgroup;
};

[[noreturn]] void Stop(const LaunchPlan& plan, LaunchStep step, int error) {
  plan.failure->step = step;
  plan.failure->error = error;
  ::_exit(127);
}

void CloseFrom(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  // Before Linux 5.9. Caisson's own descriptors are close-on-exec; this is for inherited ones.
  for (int fd = first; fd < 4096; fd++) ::close(fd);
}

void SetUpStdio(const LaunchPlan& plan) {
  for (int i = 0; i < 3; i++) {
    if (::dup2(plan.stdio[i], i) < 0) Stop(plan, LaunchStep::kStdio, errno);
  }
  if (plan.script < 0) return CloseFrom(3);
  bool there = plan.script == 3;
  if ((there ? ::fcntl(3, F_SETFD, 0) : ::dup2(plan.script, 3)) < 0) {
    Stop(plan, LaunchStep::kStdio, errno);
  }
  CloseFrom(4);
}

// For kernels and outer filters without clone3: the child moves itself.
void JoinCgroup(const LaunchPlan& plan) {
  int fd = ::openat(plan.cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (fd < 0 || ::write(fd, "0", 1) != 1) Stop(plan, LaunchStep::kCgroup, errno);
  ::close(fd);
}

// By bare system calls: the libraries' wrappers would try to tell other threads.
void SwitchIdentity(const LaunchPlan& plan) {
  const LaunchIdentity& id = *plan.identity;
  if (!id.switches) return;
  if (::syscall(SYS_setgroups, id.group_count, id.groups) != 0 ||
      ::syscall(SYS_setresgid, id.gid, id.gid, id.gid) != 0 ||
      ::syscall(SYS_setresuid, id.uid, id.uid, id.uid) != 0) {
    Stop(plan, LaunchStep::kIdentity, errno);
  }
}

// Like execvp(3), but a file that is no program is an error and not a shell script.
[[noreturn]] void Execute(const LaunchPlan& plan) {
  const char* name = plan.argv[0];
  if (std::strchr(name, '/') != nullptr) {
    ::execve(name, plan.argv, plan.env);
    int error = errno;
    // The file is there: what is missing is its interpreter.
    if (error == ENOENT && ::access(name, F_OK) == 0) error = ENOEXEC;
    Stop(plan, LaunchStep::kExec, error);
  }
  int verdict = ENOENT;
  char candidate[4096];
  size_t name_size = std::strlen(name);
  for (const char* at = plan.path; name_size > 0 && at != nullptr;) {
    const char* colon = std::strchr(at, ':');
    size_t size = colon == nullptr ? std::strlen(at) : static_cast<size_t>(colon - at);
    if (size + name_size + 2 <= sizeof candidate) {
      // An empty element is the working directory.
      std::memcpy(candidate, at, size);
      size_t used = size;
      if (size > 0) candidate[used++] = '/';
      std::memcpy(candidate + used, name, name_size + 1);
      ::execve(candidate, plan.argv, plan.env);
      bool next = errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ENODEV;
      if (errno == EACCES || !next) verdict = errno;
      if (errno == ENOENT && ::access(candidate, F_OK) == 0) verdict = ENOEXEC;
      if (!next) break;
    }
    at = colon == nullptr ? nullptr : colon + 1;
  }
  Stop(plan, LaunchStep::kExec, verdict);
}

[[noreturn]] void RunChild(const LaunchPlan* shared, bool join_cgroup) {
  const LaunchPlan& plan = *shared;
  if (::setsid() < 0) Stop(plan, LaunchStep::kSession, errno);
  if (plan.terminal && ::ioctl(plan.stdio[0], TIOCSCTTY, 0) != 0) {
    Stop(plan, LaunchStep::kTerminal, errno);
  }
  if (join_cgroup) JoinCgroup(plan);
  SetUpStdio(plan);
  SwitchIdentity(plan);
  ::umask(plan.umask);
  if (::chdir(plan.cwd) != 0) Stop(plan, LaunchStep::kWorkDir, errno);
  uint64_t no_signals = 0;
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, nullptr, sizeof no_signals);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Stop(plan, LaunchStep::kFilter, errno);
  if (plan.filter != nullptr &&
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, plan.filter) != 0) {
    Stop(plan, LaunchStep::kFilter, errno);
  }
  Execute(plan);
}

#ifdef CAISSON_SHARED_MEMORY_CHILD
[[noreturn]] void RunChildInPlace(const LaunchPlan* plan) { RunChild(plan, false); }

// clone3 with a stack of its own for the child: on the caller's stack it would overwrite what the
// caller still needs.
pid_t CloneShared(CloneArgs& args, const LaunchPlan* plan) {
  alignas(16) static char stack[48 * 1024];
  args.flags |= CLONE_VM;
  args.stack = reinterpret_cast<uint64_t>(stack);
  args.stack_size = sizeof stack;
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %[plan], %%rdi\n\t"
      "call *%[run]\n\t"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(&args), "S"(sizeof args), [run] "r"(&RunChildInPlace), [plan] "r"(plan)
      : "rcx", "r11", "memory", "cc");
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return static_cast<pid_t>(result);
}
#endif

}  // namespace

std::string_view NameOf(LaunchStep step) {
  constexpr std::string_view kNames[] = {"",       "clone",    "session", "terminal", "stdio",
                                         "cgroup", "identity", "cwd",     "filter",   "exec"};
  return kNames[static_cast<size_t>(step)];
}

pid_t Launch(const LaunchPlan& plan) {
  *plan.failure = LaunchFailure();
  CloneArgs args{};
  args.flags = CLONE_VFORK;
  if (plan.sibling) {
    args.flags |= CLONE_PARENT;  // the exit signal is then the caller's own
  } else {
    args.exit_signal = SIGCHLD;
  }
  if (plan.cgroup >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<uint64_t>(plan.cgroup);
  }
#ifdef CAISSON_SHARED_MEMORY_CHILD
  pid_t pid = CloneShared(args, &plan);
#else
  auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &args, sizeof args));
  if (pid == 0) RunChild(&plan, false);
#endif
  if (pid < 0 && errno == ENOSYS) {
    // No clone3 (an outer filter, or an old kernel).
    long flags = CLONE_VFORK | (plan.sibling ? CLONE_PARENT : 0) | SIGCHLD;
    pid = static_cast<pid_t>(::syscall(SYS_clone, flags, 0, 0, 0, 0));
    if (pid == 0) RunChild(&plan, plan.cgroup >= 0);
  }
  if (pid < 0) *plan.failure = LaunchFailure{LaunchStep::kClone, errno};
  return pid;
}

pid_t ForkProcess(bool sibling) {
  if (!sibling) return ::fork();
  return static_cast<pid_t>(
      ::syscall(SYS_clone, static_cast<long>(CLONE_PARENT | SIGCHLD), 0, 0, 0, 0));
}

LaunchFailure* MakeSharedFailure() {
  void* page = ::mmap(nullptr, sizeof(LaunchFailure), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : new (page) LaunchFailure();
}

}  // namespace caisson::guest
