// Whether a backend may make what a spec asks for. The order of checks is fixed, each has its own
// error code, and none is softened: what cannot be held is refused by name.
#pragma once

#include "base/error.h"
#include "sandbox/backend.h"

namespace caisson::sandbox {

// The decision of a creation, without acting; `POST /v1/sandboxes:explain` tells it. First what the
// backend itself cannot hold on this host, then
// - kCapabilityNotSupported: `read_only_sets` where the backend cannot keep commands from them;
// - kTransferLimitsNotPermitted: a cap of `transfer` is over the backend's ceiling.
Result<void> CheckSpec(const Backend& backend, const SandboxSpec& spec);

}  // namespace caisson::sandbox
