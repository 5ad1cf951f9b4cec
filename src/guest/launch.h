// Starting one program: the part between clone and execve. Used by the spawner and by supervisors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

struct sock_fprog;

namespace caisson::guest {

// The steps in their order; on failure the name of the step goes into the message.
enum class LaunchStep : uint32_t {
  kNone,
  kClone,
  kSession,
  kTerminal,
  kStdio,
  kCgroup,
  kIdentity,
  kWorkDir,
  kFilter,
  kExec
};
std::string_view NameOf(LaunchStep step);

// What did not work. Lives in shared memory: the child may have a memory of its own.
struct LaunchFailure {
  LaunchStep step = LaunchStep::kNone;
  int error = 0;
};

struct LaunchIdentity {
  bool switches = false;
  uid_t uid = 0;
  gid_t gid = 0;
  const gid_t* groups = nullptr;
  size_t group_count = 0;
};

// Everything the child needs, prepared: it only makes system calls. Nothing is owned.
struct LaunchPlan {
  int stdio[3] = {-1, -1, -1};  // each 3 or more
  int script = -1;              // becomes descriptor 3
  int cgroup = -1;              // directory of the cgroup-v2 group to be born in
  bool terminal = false;        // stdio[0] becomes the controlling terminal
  bool sibling = false;         // the child's parent is the caller's parent
  uint32_t umask = 022;
  const char* cwd = nullptr;
  char* const* argv = nullptr;
  char* const* env = nullptr;
  const char* path = nullptr;  // where argv[0] is looked up when it has no slash
  const LaunchIdentity* identity = nullptr;
  const sock_fprog* filter = nullptr;  // null: none
  LaunchFailure* failure = nullptr;    // shared memory
};

// Starts the program and returns when it executes or has failed: then `failure` says why, and the
// pid (if positive) is one that has ended. Not reentrant (the child runs on a static stack).
pid_t Launch(const LaunchPlan& plan);

// fork(2), optionally giving the child the caller's parent. The usual fork rules hold.
pid_t ForkProcess(bool sibling);

// LaunchFailure on a page that survives fork as the same page; null when memory is short.
LaunchFailure* MakeSharedFailure();

}  // namespace caisson::guest
