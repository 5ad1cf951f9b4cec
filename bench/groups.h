// The groups of measurements, each printing its table.
#pragma once

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/task.h"
#include "base/until.h"
#include "net/loop.h"

namespace caisson::bench {

// What every group needs; outlives its task.
struct Bench {
  net::Loop& loop;
  const Clock& clock;
  Random& random;
  std::string program_dir;  // of caisson and caisson-guest
  std::string data_root;    // under which temporary data directories are made
  double scale = 1;         // of the numbers of repetitions

  int Times(int n) const { return std::max(1, static_cast<int>(n * scale)); }
  Until Soon() const { return Until(Deadline::After(clock, Millis(60'000))); }
};

Task<Result<void>> RunSandboxGroup(Bench& bench);
Task<Result<void>> RunExecGroup(Bench& bench);
Task<Result<void>> RunFilesGroup(Bench& bench);
Task<Result<void>> RunServerGroup(Bench& bench);
Task<Result<void>> RunGuestGroup(Bench& bench);
Task<Result<void>> RunEventsGroup(Bench& bench);
Task<Result<void>> RunSearchGroup(Bench& bench);
Task<Result<void>> RunLoadGroup(Bench& bench);
Task<Result<void>> RunTurnGroup(Bench& bench);

}  // namespace caisson::bench
