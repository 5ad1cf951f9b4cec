// What the kernel says of this machine and of processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace caisson::bench {

// Kernel, cores, load, and how busy the machine is; watches it for a second.
void PrintMachine();

// A field of /proc/PID/status or smaps_rollup in KiB, e.g. "VmRSS", "VmHWM", "Pss".
Result<uint64_t> StatusKiB(pid_t pid, const std::string& field);
Result<uint64_t> PssKiB(pid_t pid);
// The process and all its descendants.
std::vector<pid_t> ProcessTree(pid_t pid);

}  // namespace caisson::bench
