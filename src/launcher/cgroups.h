// The cgroup directories of a sandbox, in any mix of v1 hierarchies and the v2 tree. All of this
// runs in the launcher; the new process only gets descriptors.
#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/attempt.h"
#include "launcher/plan.h"

namespace caisson::launcher {

// Where a new process belongs. It gets there by itself, as it is born: moving another process, or
// a whole one by "cgroup.procs", waits for an RCU grace period.
struct CgroupPlace {
  UniqueFd into;               // a v2 directory, for CLONE_INTO_CGROUP
  std::vector<UniqueFd> join;  // v1: "tasks" of the directories; writing "0" joins
};

struct CgroupHandles {
  CgroupPlace guest;
  CgroupPlace command;     // for the spawner
  UniqueFd delegated;      // for the guest: the v2 directory it may make children in
  UniqueFd memory_events;  // for the guest: evidence of the out-of-memory killer
};

// Makes plan.cgroups in order and writes their control files. `made` receives those that exist
// because of this call, on failure too: the caller removes exactly them. A directory that exists
// already is an error: it is somebody else's.
Attempt<CgroupHandles> MakeCgroups(const LaunchPlan& plan, std::vector<std::string>& made);

// Kills what is left in them (v2) and lets frozen processes run, so that they can die (v1).
void KillCgroups(const std::vector<std::string>& paths);

// Removes the directories, the last first, with all that the guest made below them. 0 when none is
// left, else the errno of the first that could not be removed yet (EBUSY: a process is still in).
// Touches nothing that is not on a cgroup file system.
int RemoveCgroups(const std::vector<std::string>& paths);

}  // namespace caisson::launcher
