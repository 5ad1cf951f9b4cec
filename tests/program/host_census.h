// What a sandbox leaves on its host while it lives, and must not leave afterwards.
#pragma once

#include <set>
#include <string>

namespace caisson::program_test {

// Mounts, cgroup directories of sandboxes, processes of sandboxes and temporary directories of
// Caisson, each as a line. Two censuses are compared: equal means nothing was left behind.
std::set<std::string> HostCensus();

}  // namespace caisson::program_test
