#include "launcher/probe.h"

#include <errno.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace caisson::launcher {
namespace {

// In the child.
Attempt<void> Try(bool rooted) {
  // A masked /proc of an outer container makes a new one forbidden: better known now.
  auto proc = static_cast<int>(syscall(SYS_fsopen, "proc", 1u));
  if (proc < 0) return Tried("fsopen", "proc");
  if (syscall(SYS_fsconfig, proc, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) < 0) {
    return Tried("create", "proc");
  }
  if (syscall(SYS_fsmount, proc, 1u, 0u) < 0) return Tried("mount", "proc");
  if (rooted && syscall(SYS_unshare, CLONE_NEWUSER) < 0) return Tried("unshare", "user namespace");
  return {};
}

}  // namespace

Attempt<void> ProbeNamespaces(bool rooted) {
  void* page =
      mmap(nullptr, sizeof(Trouble), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return Tried("memory to try in");
  auto* shared = static_cast<Trouble*>(page);
  clone_args arguments{};
  arguments.flags =
      CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
  if (!rooted) arguments.flags |= CLONE_NEWUSER;
  arguments.exit_signal = SIGCHLD;
  long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return Tried("clone3");
  if (pid == 0) {
    Attempt<void> tried = Try(rooted);
    if (!tried) *shared = tried.error();
    _exit(tried ? 0 : 1);
  }
  int status = 0;
  while (waitpid(static_cast<pid_t>(pid), &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return {};
  if (WIFSIGNALED(status)) return Tried("the child was killed", "", "", 0);
  return std::unexpected(*shared);
}

}  // namespace caisson::launcher
