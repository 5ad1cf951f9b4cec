#include "sandbox/backends/local/usage.h"

#include <sys/statvfs.h>

#include <charconv>
#include <initializer_list>
#include <ranges>
#include <string_view>

#include "base/syscall.h"

namespace caisson::sandbox::local {
namespace {

constexpr size_t kMaxFile = 4096;

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t number = 0;
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

// A control file of the commands. Where they have a directory below the sandbox's, that is made
// after it; the guest's own does not count.
std::optional<std::string> ReadControl(std::span<const std::string> cgroups,
                                       std::initializer_list<std::string_view> names) {
  for (const std::string& directory : cgroups | std::views::reverse) {
    if (directory.ends_with("/guest")) continue;
    for (std::string_view name : names) {
      auto text = ReadWholeFile(directory + "/" + std::string(name), kMaxFile);
      if (text) return *std::move(text);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> ReadNumber(std::span<const std::string> cgroups,
                                   std::initializer_list<std::string_view> names) {
  auto text = ReadControl(cgroups, names);
  return text.has_value() ? ParseNumber(*text) : std::nullopt;
}

std::optional<Micros> CpuTime(std::span<const std::string> cgroups) {
  // "usage_usec 1234", there also without the cpu controller. The file of v1 has other lines.
  constexpr std::string_view kUsage = "usage_usec ";
  for (const std::string& directory : cgroups | std::views::reverse) {
    if (directory.ends_with("/guest")) continue;
    auto text = ReadWholeFile(directory + "/cpu.stat", kMaxFile);
    if (!text || !text->starts_with(kUsage)) continue;
    auto number = ParseNumber(std::string_view(*text).substr(kUsage.size()));
    if (number.has_value()) return Micros(*number);
  }
  auto nanos = ReadNumber(cgroups, {"cpuacct.usage"});  // v1, beside its cpu controller
  if (!nanos.has_value()) return std::nullopt;
  return Micros(*nanos / 1000);
}

// One tmpfs has all writable paths, /tmp among them.
std::optional<uint64_t> DiskBytes(const std::string& root) {
  struct statvfs status{};
  if (root.empty() || ::statvfs((root + "/tmp").c_str(), &status) != 0) return std::nullopt;
  return (status.f_blocks - status.f_bfree) * uint64_t{status.f_frsize};
}

}  // namespace

Usage MeasureUsage(std::span<const std::string> cgroups, const std::string& root) {
  Usage usage;
  usage.cpu = CpuTime(cgroups);
  usage.memory_bytes = ReadNumber(cgroups, {"memory.current", "memory.usage_in_bytes"});
  usage.memory_peak_bytes = ReadNumber(cgroups, {"memory.peak", "memory.max_usage_in_bytes"});
  usage.pids = ReadNumber(cgroups, {"pids.current"});
  // The guest's spawner is among them, for as long as there is a sandbox.
  if (usage.pids.has_value() && *usage.pids > 0) --*usage.pids;
  usage.disk_bytes = DiskBytes(root);
  return usage;
}

}  // namespace caisson::sandbox::local
