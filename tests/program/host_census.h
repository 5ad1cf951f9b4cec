// What a sandbox leaves on its host while it lives, and must not leave afterwards.
#pragma once

#include <set>
#include <string>

namespace caisson::program_test {

// Lines that are in the census now and were not in `before`, once they stay: what ends by itself in
// a moment (an orphan that init has not reaped yet) is waited for. Empty: nothing was left behind.
std::set<std::string> LeftBehind(const std::set<std::string>& before);

// Mounts, cgroup directories of sandboxes, processes of sandboxes and temporary directories of
// Caisson, each as a line. Zombies do not count: they have ended.
std::set<std::string> HostCensus();

}  // namespace caisson::program_test
