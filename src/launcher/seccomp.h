// The outer system-call filter, the last wall before the guest runs.
#pragma once

#include <string>

#include "launcher/attempt.h"

namespace caisson::launcher {

// Loads `filter` (struct sock_filter[]) on the calling process; empty: none. no_new_privs is set.
Attempt<void> LoadFilter(const std::string& filter);

}  // namespace caisson::launcher
