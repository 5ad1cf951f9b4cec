#include "machine.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <sstream>

#include "base/syscall.h"
#include "stats.h"

namespace caisson::bench {
namespace {

struct CpuTimes {
  uint64_t idle = 0;
  uint64_t all = 0;
};

CpuTimes ReadCpuTimes() {
  std::istringstream words(ReadWholeFile("/proc/stat").value_or(""));
  std::string name;
  words >> name;
  CpuTimes times;
  // user nice system idle iowait irq softirq steal
  for (int i = 0; i < 8; i++) {
    uint64_t value = 0;
    words >> value;
    times.all += value;
    if (i == 3 || i == 4) times.idle += value;
  }
  return times;
}

Result<uint64_t> FieldKiB(const std::string& path, const std::string& field) {
  CAISSON_ASSIGN(std::string text, ReadWholeFile(path));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field + ":")) continue;
    std::istringstream rest(line.substr(field.size() + 1));
    uint64_t value = 0;
    rest >> value;
    return value;
  }
  return Fail(ErrorCode::kNotFound, path + " has no " + field);
}

}  // namespace

void PrintMachine() {
  utsname names{};
  ::uname(&names);
  CpuTimes before = ReadCpuTimes();
  ::poll(nullptr, 0, 1000);
  CpuTimes after = ReadCpuTimes();
  auto all = static_cast<double>(after.all - before.all);
  double busy = all > 0 ? 100 * (1 - static_cast<double>(after.idle - before.idle) / all) : 0;
  std::string load = ReadWholeFile("/proc/loadavg").value_or("?");
  load = load.substr(0, load.find('\n'));
  PrintLine(fmt::format("caisson-bench {}: {} {} {}, {} cores, load {}, {:.0f} % busy{}",
                        CAISSON_VERSION, names.sysname, names.release, names.machine,
                        ::sysconf(_SC_NPROCESSORS_ONLN), load, busy,
                        busy > 10 ? ": noisy, other work runs on this machine" : ""));
}

Result<uint64_t> StatusKiB(pid_t pid, const std::string& field) {
  return FieldKiB(fmt::format("/proc/{}/status", pid), field);
}

Result<uint64_t> PssKiB(pid_t pid) {
  return FieldKiB(fmt::format("/proc/{}/smaps_rollup", pid), "Pss");
}

std::vector<pid_t> ProcessTree(pid_t pid) {
  std::vector<pid_t> tree{pid};
  for (size_t i = 0; i < tree.size(); i++) {
    std::istringstream children(
        ReadWholeFile(fmt::format("/proc/{}/task/{}/children", tree[i], tree[i])).value_or(""));
    for (pid_t child = 0; children >> child;) tree.push_back(child);
  }
  return tree;
}

}  // namespace caisson::bench
