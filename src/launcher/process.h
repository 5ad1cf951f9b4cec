// Processes named so that a recycled pid is never mistaken for the old one.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"

namespace caisson::launcher {

// Milliseconds and microseconds of the monotonic clock.
int64_t NowMs();
uint64_t NowUs();

// Field 22 of /proc/PID/stat: clock ticks from boot to the start of the process. 0: no such
// process.
uint64_t StartTimeOf(int pid);

// A pidfd of the process that has this pid and started then; empty when it is gone.
UniqueFd OpenProcess(int pid, uint64_t start_time);

// SIGKILL. A process that is already gone is no error.
void Kill(int pidfd);

// Takes the status of an ended child (the pidfd is readable). Nothing happens, and the answer is 0,
// when it is somebody else's child. Else 1 to 64 is the signal that killed it, or 256 + exit code.
int Reap(int pidfd);

}  // namespace caisson::launcher
