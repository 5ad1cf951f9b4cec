// The new root: built under a detached stage by descriptors, then made the root of the namespace.
#pragma once

#include "base/unique_fd.h"
#include "launcher/attempt.h"
#include "launcher/plan.h"

namespace caisson::launcher {

// Runs in the new mount namespace. Makes everything private, mounts the root on plan.stage_dir and
// carries out plan.mounts in order. Returns the root's descriptor. No path is looked up in the new
// root but by openat2 confined to it.
Attempt<UniqueFd> BuildRoot(const LaunchPlan& plan);

// pivot_root to it; the host's tree is gone afterwards. The working directory is the new "/".
Attempt<void> PivotTo(int root);

}  // namespace caisson::launcher
