// Landlock: the second wall around files, and the wall around abstract sockets and signals.
#pragma once

#include "launcher/attempt.h"
#include "launcher/plan.h"

namespace caisson::launcher {

// Restricts the calling process by plan.landlock_*. `guest` (the program to be executed) and
// `cgroup` (the delegated directory, or -1) lie outside the new root and get rules of their own.
Attempt<void> ApplyLandlock(const LaunchPlan& plan, int guest, int cgroup);

}  // namespace caisson::launcher
