// A supervisor: one small process an exec, where no cgroup-v2 tree is given.
//
// It is the sub-reaper of its command: whatever the command leaves behind (own sessions, double
// forks) becomes its child, so the tree cannot get away, and "no child left" means that it is gone.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "guest/launch.h"

namespace caisson::guest {

// Messages over its SOCK_SEQPACKET socket, one struct a packet.
struct SupervisorReport {
  enum class Kind : uint32_t {
    kStarted,  // pid
    kFailed,   // failure
    kExited,   // the command's first process ended: status, usage, still_running
    kGone,     // no process of the tree is left; the last message
  };
  Kind kind = Kind::kStarted;
  pid_t pid = -1;
  LaunchFailure failure;
  int status = 0;  // of waitpid
  int64_t cpu_ms = 0;
  int64_t max_rss_bytes = 0;
  int64_t still_running = 0;
};

struct SupervisorOrder {
  enum class Kind : uint32_t {
    kKill,          // stop and kill everything, until nothing is left
    kSignalLeader,  // the command's process group
    kSignalTree,
  };
  Kind kind = Kind::kKill;
  int signal = 0;
};

// The body of the process, in a fork of the spawner; returns never. `proc` is a descriptor of /proc.
[[noreturn]] void RunSupervisor(LaunchPlan& plan, int control, int proc);

}  // namespace caisson::guest
