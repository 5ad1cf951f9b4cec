// The whole guest, wired: configuration in, a served channel until it is told to stop.
#pragma once

#include "base/error.h"
#include "guest/config.h"

namespace caisson::guest {

// Starts everything and serves until SIGTERM or /v1/shutdown; returns after the commands are dead.
// On failure nothing has been served, and the reason has been written to the sync socket.
Result<void> Serve(Config& config);

}  // namespace caisson::guest
