// Identity: id maps of the user namespace, uid and gid, resource limits, capabilities.
#pragma once

#include <vector>

#include "launcher/attempt.h"
#include "launcher/plan.h"

namespace caisson::launcher {

// How the new process has to name the host's id `outside`: unchanged, unless it already lives in
// its user namespace while it builds the root.
uint32_t SeenAs(const LaunchPlan& plan, const std::vector<IdMap>& map, uint32_t outside);
// The host's id of the sandbox's root (the first map's start).
uint32_t OutsideRoot(const std::vector<IdMap>& map);
// True where the kernel lets an unprivileged launcher map its group only after "deny" in setgroups.
bool MustDenySetgroups(const LaunchPlan& plan);

// In the launcher: writes the maps of process `pid`, which has a new user namespace.
Attempt<void> WriteIdMaps(const LaunchPlan& plan, int pid);

// In the new process.
Attempt<void> TakeIdentity(const LaunchPlan& plan);
Attempt<void> SetLimits(const LaunchPlan& plan);
// Bounding set down to plan.keep_capabilities, nothing inheritable or ambient, no_new_privs. The
// permitted set stays: the exec that follows computes it anew from the bounding set.
Attempt<void> DropCapabilities(const LaunchPlan& plan);

}  // namespace caisson::launcher
