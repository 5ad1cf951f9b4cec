// caisson-bench: measures what SPECIFICATION.md promises. It prints times and never judges them.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "groups.h"
#include "machine.h"
#include "stats.h"

namespace caisson::bench {
namespace {

struct Group {
  std::string_view name;
  Task<Result<void>> (*run)(Bench& bench);
};

constexpr Group kGroups[] = {
    {"sandbox", RunSandboxGroup}, {"exec", RunExecGroup},   {"files", RunFilesGroup},
    {"server", RunServerGroup},   {"guest", RunGuestGroup}, {"events", RunEventsGroup},
    {"search", RunSearchGroup},   {"load", RunLoadGroup},   {"turn", RunTurnGroup}};

constexpr std::string_view kUsage =
    "usage: caisson-bench [--data-root DIR] [--scale FACTOR] [GROUP…]\n"
    "groups (all unless named): sandbox exec files server guest events search load turn\n"
    "  --data-root DIR   where temporary data directories are made (/tmp; at most 30 bytes)\n"
    "  --scale FACTOR    of the numbers of repetitions (1)\n"
    "Needs root, and caisson and caisson-guest beside it.\n";

const Group* FindGroup(std::string_view name) {
  for (const Group& group : kGroups) {
    if (group.name == name) return &group;
  }
  return nullptr;
}

int Main(const std::vector<std::string>& arguments) {
  SystemClock clock;
  SystemRandom random;
  net::Loop loop(clock);
  Bench bench{loop, clock, random, "", "/tmp", 1};
  bench.program_dir = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<const Group*> chosen;
  for (size_t i = 0; i < arguments.size(); i++) {
    bool has_value = i + 1 < arguments.size();
    if (arguments[i] == "--data-root" && has_value) {
      bench.data_root = arguments[++i];
    } else if (arguments[i] == "--scale" && has_value) {
      bench.scale = std::atof(arguments[++i].c_str());
    } else if (const Group* group = FindGroup(arguments[i])) {
      chosen.push_back(group);
    } else {
      bool help = arguments[i] == "--help";
      fmt::print(help ? stdout : stderr, "{}", kUsage);
      return help ? 0 : 2;
    }
  }
  if (chosen.empty()) {
    for (const Group& group : kGroups) chosen.push_back(&group);
  }
  PrintMachine();
  int failed = 0;
  for (const Group* group : chosen) {
    auto result = net::RunUntilDone(loop, group->run(bench));
    if (result) continue;
    fmt::print(stderr, "{}: {}\n", group->name, result.error().ToString());
    failed = 1;
  }
  return failed;
}

}  // namespace
}  // namespace caisson::bench

int main(int argc, char** argv) {
  return caisson::bench::Main(std::vector<std::string>(argv + 1, argv + argc));
}
