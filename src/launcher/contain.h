// The making of one sandbox's first process: the ordered list of steps.
#pragma once

#include <signal.h>

#include <cstdint>
#include <string>

#include "base/unique_fd.h"
#include "launcher/attempt.h"
#include "launcher/cgroups.h"
#include "launcher/plan.h"
#include "launcher/protocol.h"

namespace caisson::launcher {

// What the new process says on its sync socket before it becomes the guest. The guest's own letters
// (guest/protocol.h) follow on the same socket.
inline constexpr char kSyncMaps = 'M';     // "write my id maps"; answered by the same letter
inline constexpr char kSyncTrouble = 'X';  // a ContainTrouble follows; the process ends

struct ContainTrouble {
  LaunchStep step{};
  Trouble trouble;
};

// Microseconds since kCreate at which each step ended; shared with the new process.
class StepClock {
 public:
  explicit StepClock(uint64_t start_us);
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  void Mark(LaunchStep step);
  // The first step of the new process that has not ended.
  LaunchStep Current() const;
  void CopyTo(uint32_t (&step_us)[kLaunchStepNames.size()]) const;

 private:
  uint64_t start_us_;
  uint32_t* step_us_;  // a shared page; a private one when memory is short
};

// Everything the new process needs, held by the launcher until it runs.
struct Containment {
  const LaunchPlan* plan = nullptr;
  const UniqueFd* given = nullptr;  // kCreateFdCount descriptors of kCreate
  const CgroupHandles* cgroups = nullptr;
  int network = -1;  // a ready network namespace, to be used instead of a new one
  StepClock* clock = nullptr;
  int launcher_pidfd = -1;
  int null_fd = -1;
};

struct NewProcess {
  int pid = 0;
  UniqueFd pidfd;
  UniqueFd sync;  // non-blocking stream socket to the new process
};

// Descriptors of the launcher below this number are its own and never reach a guest: the guest's
// are put there, so no received one may lie in the way.
inline constexpr int kFirstFreeFd = 16;

// What the launcher ignores, to live exactly as long as its control socket; not for sandboxes.
inline constexpr int kIgnoredSignals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

// clone3; the child carries out the steps and executes the guest. Does not wait for it.
Attempt<NewProcess> StartContained(const Containment& containment);

}  // namespace caisson::launcher
