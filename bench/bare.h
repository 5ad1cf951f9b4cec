// Yardsticks: the bare operations, and other tools where they are installed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "groups.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {

// posix_spawn of argv[0] and wait. Its output goes to /dev/null.
Result<void> SpawnAndWait(const std::vector<std::string>& argv);
// `count` of them at once, until the last has ended.
Result<void> SpawnManyAndWait(const std::vector<std::string>& argv, int count);

// The program's path; where it is not installed a line says so, and it is empty.
std::string FindTool(const std::string& name);

// Another program for what is measured.
class OtherTool {
 public:
  OtherTool(std::string name, std::vector<std::string> argv, int every)
      : name_(std::move(name)), argv_(std::move(argv)), every_(every) {}
  // Runs it once; prints why it is left out if it does not work.
  bool Works(const Bench& bench) const;
  // Measures in each `every`-th round.
  Result<void> Measure(const Bench& bench, int round);
  void Print() const { PrintRow("  " + name_, samples_); }

 private:
  std::string name_;
  std::vector<std::string> argv_;
  int every_;
  Samples samples_;
};

// bwrap, runc and docker, those that work here. `scratch` outlives their use.
Result<std::vector<OtherTool>> FindOtherTools(const Bench& bench,
                                              const TemporaryDirectory& scratch);

}  // namespace caisson::bench
