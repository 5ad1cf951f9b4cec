// What server and launcher say to each other: one SOCK_SEQPACKET unix socket, one message a packet.
//
// The server starts the launcher with its end of the socket as descriptor kControlFd. Requests
// carry an id chosen by the server; replies come in any order and name it. When the server's end
// closes, the launcher either leaves the sandboxes alone and exits (`--keep`, the server's
// launcher: a later one finds them again by pid and start time) or ends them all first
// (`--ephemeral`, `caisson exec`).
//
// Freestanding. All structs are sent as they are: both ends are of one build on one machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launcher/plan.h"

namespace caisson::launcher {

inline constexpr int kControlFd = 3;
inline constexpr uint32_t kProtocolVersion = 1;
// Of one packet; plans travel as descriptors.
inline constexpr size_t kMaxMessageBytes = 64 * 1024;

enum class Op : uint32_t {
  kHello = 1,   // → kOk with version in `value`
  kCreate = 2,  // descriptors: CreateFds; → kOk with pid, start_time and one descriptor, the pidfd
  kTerminate = 3,  // pid, start_time, deadline_ms; text: cgroup directories, NUL-separated, as in
                   // the plan. Kills, waits, removes the cgroups. → kOk: all confirmed gone
  kFind = 4,       // pid, start_time → kOk with the pidfd while that very process lives, else kGone
  kRemoveTree = 5,  // text: a path relative to the state directory; removed with all in it, never
                    // following a link or leaving the directory's file system; missing is kOk
};

// Descriptors of kCreate, in this order.
enum CreateFds : uint8_t {
  kFdPlan,    // sealed memfd with EncodePlan()
  kFdGuest,   // the caisson-guest program, executed by descriptor
  kFdListen,  // listening unix socket, the guest's channel
  kFdToken,   // file with the token
  kFdConfig,  // file with the guest's configuration
  kFdFilter,  // file with the seccomp program for commands
  kCreateFdCount,
};

struct Request {
  Op op{};
  uint32_t id = 0;
  int32_t pid = 0;
  uint32_t deadline_ms = 0;  // 0: 10,000
  uint64_t start_time = 0;   // field 22 of /proc/PID/stat, in clock ticks since boot
  uint32_t text_bytes = 0;   // of the text that follows this struct
  uint32_t zero = 0;
};

enum class Status : uint32_t {
  kOk = 0,
  kFailed = 1,   // step and error_number say where; the text names the object
  kGone = 2,     // no such process (any more)
  kPending = 3,  // kTerminate: not all confirmed before the deadline; may be asked again
};

struct Reply {
  uint32_t id = 0;
  Status status{};
  int32_t pid = 0;
  int32_t error_number = 0;
  uint64_t start_time = 0;
  uint32_t value = 0;
  LaunchStep step{};
  uint8_t zero[3] = {};
  // Microseconds from the start of kCreate to the end of each step; 0 where it did not run.
  uint32_t step_us[kLaunchStepNames.size()] = {};
  uint32_t text_bytes = 0;  // of the text that follows: what was tried, e.g. "bind /usr"
};

}  // namespace caisson::launcher
