#include "sandbox/spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace caisson::sandbox {
namespace {

template <typename T>
struct Named {
  T value;
  std::string_view name;
};

constexpr std::array<Named<Isolation>, 8> kIsolations{{
    {Isolation::kNone, "none"},
    {Isolation::kRuntime, "runtime"},
    {Isolation::kOsProcess, "os_process"},
    {Isolation::kContainer, "container"},
    {Isolation::kHardenedContainer, "hardened_container"},
    {Isolation::kUserKernel, "user_kernel"},
    {Isolation::kMicroVm, "microvm"},
    {Isolation::kVm, "vm"},
}};
constexpr std::array<Named<NetworkMode>, 4> kNetworkModes{{
    {NetworkMode::kClosed, "closed"},
    {NetworkMode::kAllowList, "allow_list"},
    {NetworkMode::kNamed, "named"},
    {NetworkMode::kUnrestricted, "unrestricted"},
}};
constexpr std::array<Named<WorkspaceMode>, 2> kWorkspaceModes{{
    {WorkspaceMode::kSession, "session"},
    {WorkspaceMode::kEphemeral, "ephemeral"},
}};

template <typename T>
std::string_view NameIn(std::span<const Named<T>> table, T value) {
  for (const Named<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

template <typename T>
Result<T> ParseIn(std::span<const Named<T>> table, std::string_view what, std::string_view name) {
  std::string known;
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return Fail(ErrorCode::kInvalidArgument, std::string(what) + " \"" + std::string(name) +
                                               "\" is unknown; it is one of " + known);
}

Result<void> Invalid(std::string_view field, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument, std::string(field) + " " + std::string(why));
}

constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxComponent = 255;
constexpr size_t kMaxWritablePaths = 32;
constexpr size_t kMaxReadOnlySets = 16;
constexpr size_t kMaxEnvironment = 256;
constexpr size_t kMaxEnvironmentBytes = 64 * 1024;

// Absolute, not "/", no empty, "." or ".." component, no NUL or line break.
Result<void> CheckPath(std::string_view field, std::string_view path) {
  if (path.empty() || path[0] != '/') return Invalid(field, "must be an absolute path");
  if (path.size() > kMaxPath) return Invalid(field, "is longer than 4095 bytes");
  if (path == "/") return Invalid(field, "must not be the root directory");
  for (char c : path) {
    if (c == '\0' || c == '\n') return Invalid(field, "must not hold NUL or a line break");
  }
  for (size_t begin = 1; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string_view component = path.substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") {
      return Invalid(field, "must be normal: no empty, \".\" or \"..\" component");
    }
    if (component.size() > kMaxComponent) return Invalid(field, "has a component over 255 bytes");
    begin = end + 1;
  }
  return {};
}

bool IsBelow(std::string_view path, std::string_view directory) {
  return path == directory || (path.starts_with(directory) && path.size() > directory.size() &&
                               path[directory.size()] == '/');
}

// A path that the sandbox writes to must not lie over what the backend itself puts there.
Result<void> CheckWritable(std::string_view field, std::string_view path) {
  CAISSON_TRY(CheckPath(field, path));
  constexpr std::array<std::string_view, 12> kReserved{"/bin",   "/sbin",   "/lib", "/lib32",
                                                       "/lib64", "/libx32", "/usr", "/etc",
                                                       "/dev",   "/proc",   "/sys", "/run"};
  for (std::string_view reserved : kReserved) {
    if (IsBelow(path, reserved)) {
      return Invalid(field, "must not lie in " + std::string(reserved));
    }
  }
  return {};
}

Result<void> CheckResources(const Resources& resources) {
  if (!std::isfinite(resources.cpus) || resources.cpus < 0.01 || resources.cpus > 4096) {
    return Invalid("resources.cpus", "must be between 0.01 and 4096");
  }
  if (resources.memory_bytes < 4ull << 20) {
    return Invalid("resources.memory_bytes", "must be at least 4 MiB");
  }
  if (resources.memory_bytes > 1ull << 50) {
    return Invalid("resources.memory_bytes", "must be at most 1 PiB");
  }
  if (resources.pids < 1 || resources.pids > 4'000'000) {
    return Invalid("resources.pids", "must be between 1 and 4000000");
  }
  if (resources.disk_bytes < 1ull << 20) {
    return Invalid("resources.disk_bytes", "must be at least 1 MiB");
  }
  if (resources.disk_bytes > 1ull << 50) {
    return Invalid("resources.disk_bytes", "must be at most 1 PiB");
  }
  if (resources.open_files < 64 || resources.open_files > 1u << 20) {
    return Invalid("resources.open_files", "must be between 64 and 1048576");
  }
  return {};
}

Result<void> CheckLifetimes(const Lifetimes& lifetimes) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::days(366);
  const std::pair<std::string_view, std::chrono::milliseconds> fields[] = {
      {"lifetimes.ttl", lifetimes.ttl},
      {"lifetimes.idle", lifetimes.idle},
      {"lifetimes.max_exec", lifetimes.max_exec}};
  for (const auto& [field, value] : fields) {
    if (value.count() <= 0) return Invalid(field, "must be positive");
    if (value > kLongest) return Invalid(field, "must be at most 366 days");
  }
  return {};
}

Result<void> CheckTransfer(const Transfer& transfer) {
  for (const auto& [direction, caps] :
       {std::pair("transfer.in", transfer.in), std::pair("transfer.out", transfer.out)}) {
    const std::pair<std::string_view, int64_t> fields[] = {
        {"max_files", caps.max_files},
        {"max_file_bytes", caps.max_file_bytes},
        {"max_total_bytes", caps.max_total_bytes}};
    for (const auto& [field, value] : fields) {
      if (value > 0) continue;
      return Invalid(std::string(direction) + "." + std::string(field), "must be positive");
    }
  }
  return {};
}

Result<void> CheckEnvironment(const std::map<std::string, std::string>& env) {
  if (env.size() > kMaxEnvironment) return Invalid("env", "has more than 256 variables");
  size_t bytes = 0;
  for (const auto& [name, value] : env) {
    bytes += name.size() + value.size() + 2;
    if (name.empty() || name.find('=') != name.npos || name.find('\0') != name.npos) {
      return Invalid("env", "has a name that is empty or holds '=' or NUL");
    }
    if (value.find('\0') != value.npos) return Invalid("env." + name, "must not hold NUL");
    if (name.starts_with("CAISSON_GUEST_")) {
      return Invalid("env." + name, "is reserved: names must not begin with CAISSON_GUEST_");
    }
  }
  if (bytes > kMaxEnvironmentBytes) return Invalid("env", "is larger than 64 KiB");
  return {};
}

}  // namespace

std::string_view NameOf(Isolation isolation) { return NameIn<Isolation>(kIsolations, isolation); }
Result<Isolation> ParseIsolation(std::string_view name) {
  return ParseIn<Isolation>(kIsolations, "isolation", name);
}
std::string_view NameOf(NetworkMode mode) { return NameIn<NetworkMode>(kNetworkModes, mode); }
Result<NetworkMode> ParseNetworkMode(std::string_view name) {
  return ParseIn<NetworkMode>(kNetworkModes, "network mode", name);
}
std::string_view NameOf(WorkspaceMode mode) { return NameIn<WorkspaceMode>(kWorkspaceModes, mode); }
Result<WorkspaceMode> ParseWorkspaceMode(std::string_view name) {
  return ParseIn<WorkspaceMode>(kWorkspaceModes, "workspace mode", name);
}

json::object TransferToJson(const Transfer& transfer) {
  auto caps = [](const TransferCaps& one) {
    return json::object{{"max_files", one.max_files},
                        {"max_file_bytes", one.max_file_bytes},
                        {"max_total_bytes", one.max_total_bytes}};
  };
  return {{"in", caps(transfer.in)}, {"out", caps(transfer.out)}};
}

Result<SandboxSpec> BuiltInProfile(std::string_view name) {
  SandboxSpec spec;
  spec.profile = name;
  if (name == "default") {
    spec.requirements.min_isolation = Isolation::kHardenedContainer;
    return spec;
  }
  if (name == "default-rootless") {
    spec.requirements.min_isolation = Isolation::kContainer;
    spec.requirements.resource_limits = false;
    spec.requirements.uid_separation = false;
    return spec;
  }
  return Fail(ErrorCode::kNotFound, "there is no built-in profile \"" + std::string(name) +
                                        "\"; there are default and default-rootless");
}

Result<void> ValidateSpec(const SandboxSpec& spec) {
  if (spec.backend.empty()) return Invalid("backend", "must not be empty");
  if (spec.profile.empty()) return Invalid("profile", "must not be empty");
  if (!spec.rootfs.empty()) CAISSON_TRY(CheckPath("rootfs", spec.rootfs));
  CAISSON_TRY(CheckWritable("work_dir", spec.work_dir));
  CAISSON_TRY(CheckWritable("home_dir", spec.home_dir));
  if (spec.writable_paths.size() > kMaxWritablePaths) {
    return Invalid("writable_paths", "has more than 32 entries");
  }
  // None may contain another: the inner one would be hidden, or its limit counted twice.
  std::vector<std::pair<std::string, std::string_view>> writable{
      {"work_dir", spec.work_dir},
      {"home_dir", spec.home_dir},
      {"the built-in /tmp", "/tmp"},
      {"the built-in /var/tmp", "/var/tmp"}};
  if (spec.read_only_sets.size() > kMaxReadOnlySets) {
    return Invalid("read_only_sets", "has more than 16 entries");
  }
  for (const auto& [name, paths] : {std::pair("writable_paths", &spec.writable_paths),
                                    std::pair("read_only_sets", &spec.read_only_sets)}) {
    for (size_t i = 0; i < paths->size(); i++) {
      std::string field = std::string(name) + "[" + std::to_string(i) + "]";
      CAISSON_TRY(CheckWritable(field, (*paths)[i]));
      writable.emplace_back(field, (*paths)[i]);
    }
  }
  for (size_t i = 0; i < writable.size(); i++) {
    for (size_t j = 0; j < i; j++) {
      if (IsBelow(writable[i].second, writable[j].second) ||
          IsBelow(writable[j].second, writable[i].second)) {
        return Invalid(writable[i].first, "overlaps " + writable[j].first);
      }
    }
  }
  CAISSON_TRY(CheckResources(spec.resources));
  CAISSON_TRY(CheckLifetimes(spec.lifetimes));
  CAISSON_TRY(CheckTransfer(spec.transfer));
  return CheckEnvironment(spec.env);
}

}  // namespace caisson::sandbox
