// The sandbox's network namespace: empty but for loopback.
#pragma once

#include "launcher/attempt.h"

namespace caisson::launcher {

// Brings "lo" of the calling process's network namespace up.
Attempt<void> LoopbackUp();

}  // namespace caisson::launcher
