// What a local sandbox uses now, from its cgroups and its file system.
#pragma once

#include <span>
#include <string>

#include "sandbox/backend.h"

namespace caisson::sandbox::local {

// `cgroups` are the sandbox's directories of all hierarchies, in the order they were made; `root`
// is where its root file system is seen ("/proc/<pid>/root"), empty: not at all.
Usage MeasureUsage(std::span<const std::string> cgroups, const std::string& root);

}  // namespace caisson::sandbox::local
