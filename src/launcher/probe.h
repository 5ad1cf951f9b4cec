// Whether this host lets sandboxes have namespaces, found out by making them once.
#pragma once

#include "launcher/attempt.h"

namespace caisson::launcher {

// In a child that ends at once; changes nothing. `rooted`: as for a plan with
// user_namespace_first false.
Attempt<void> ProbeNamespaces(bool rooted);

}  // namespace caisson::launcher
