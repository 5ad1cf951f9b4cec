#include "host_census.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/syscall.h"
#include "program.h"

namespace caisson::program_test {
namespace {

namespace fs = std::filesystem;

// Names of sandboxes: an id.
bool IsSandboxName(const std::string& name) { return name.size() == 29 && name.starts_with("sbx"); }

void AddCgroups(const fs::path& dir, int depth, std::set<std::string>& found) {
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (!at->is_directory(error)) continue;
    if (IsSandboxName(at->path().filename())) found.insert("cgroup " + at->path().string());
    if (depth > 0) AddCgroups(at->path(), depth - 1, found);
  }
}

}  // namespace

std::set<std::string> LeftBehind(const std::set<std::string>& before) {
  std::set<std::string> left;
  (void)Eventually([&] {
    left.clear();
    std::ranges::set_difference(HostCensus(), before, std::inserter(left, left.end()));
    return left.empty();
  });
  return left;
}

std::set<std::string> HostCensus() {
  std::set<std::string> found;
  std::istringstream mounts(ReadWholeFile("/proc/self/mountinfo").value_or(""));
  for (std::string line; std::getline(mounts, line);) found.insert("mount " + line);
  AddCgroups("/sys/fs/cgroup", 5, found);
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    std::string pid = at->path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string name = ReadWholeFile(at->path().string() + "/comm").value_or("");
    std::string status = ReadWholeFile(at->path().string() + "/stat").value_or("");
    if (status.find(") Z ") != std::string::npos) continue;
    // The first process of a sandbox is a memfd, whose name the kernel cuts to 15 bytes.
    if (name.starts_with("caisson-") || name == "3\n" || name == "4\n")
      found.insert("process " + pid + " " + name);
  }
  // Wherever runtime directories may lie (src/cli/runtime_dir.h); in /tmp tests have more.
  for (const auto& [parent, prefix] :
       {std::pair("/tmp", "caisson-exec-"), std::pair("/run", "caisson-"),
        std::pair("/dev/shm", "caisson-")}) {
    for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
      std::string name = at->path().filename();
      if (name.starts_with(prefix)) found.insert("file " + at->path().string());
    }
  }
  return found;
}

}  // namespace caisson::program_test
