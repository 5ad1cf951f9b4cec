// What a sandbox is asked to be. A spec comes from trusted context (an API caller's request under
// its scope, an agent's definition, a profile): never from a model.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace caisson::sandbox {

// The isolation ladder, weakest first; comparisons mean what they say. DESIGN.md, section 6.
enum class Isolation : uint8_t {
  kNone,               // plain processes
  kRuntime,            // a language runtime confines
  kOsProcess,          // uid, seccomp, Landlock without namespaces
  kContainer,          // namespaces and cgroups
  kHardenedContainer,  // the same with seccomp, Landlock, no capabilities, own uids
  kUserKernel,         // gVisor
  kMicroVm,
  kVm,
};
std::string_view NameOf(Isolation isolation);
// kInvalidArgument for an unknown name; "process" is one on purpose.
Result<Isolation> ParseIsolation(std::string_view name);

enum class NetworkMode : uint8_t {
  kClosed,        // loopback only: no route, no resolver
  kAllowList,     // through the egress proxy, listed hosts only
  kNamed,         // a network that the operator listed by name
  kUnrestricted,  // only where the operator allows it
};
std::string_view NameOf(NetworkMode mode);
Result<NetworkMode> ParseNetworkMode(std::string_view name);

enum class WorkspaceMode : uint8_t {
  kSession,    // files outlive the compute; deleted with the session
  kEphemeral,  // files go with the sandbox
};
std::string_view NameOf(WorkspaceMode mode);
Result<WorkspaceMode> ParseWorkspaceMode(std::string_view name);

// 0 means "no limit" nowhere: every limit is a positive number.
struct Resources {
  double cpus = 1.0;                     // in cores; bandwidth, not affinity
  uint64_t memory_bytes = 512ull << 20;  // commands and, with tmpfs, their files
  uint32_t pids = 256;
  uint64_t disk_bytes = 1ull << 30;  // of all writable paths together
  uint32_t open_files = 4096;        // per process
};

struct Lifetimes {
  std::chrono::milliseconds ttl{std::chrono::hours(24)};       // from creation; absolute
  std::chrono::milliseconds idle{std::chrono::hours(24)};      // without activity, see manager.h
  std::chrono::milliseconds max_exec{std::chrono::hours(24)};  // of one command
};

// Caps of many files in one call (DESIGN.md, section 5). A call may ask for less, never for more.
struct TransferCaps {
  int64_t max_files = 64;
  int64_t max_file_bytes = 8ll << 20;
  int64_t max_total_bytes = 32ll << 20;
};
struct Transfer {
  TransferCaps in;
  TransferCaps out;
};

// What a spec insists on. A backend that does not declare one of these on this host refuses.
struct Requirements {
  Isolation min_isolation = Isolation::kContainer;
  bool resource_limits = true;  // cpu, memory and pids enforced by the kernel
  bool disk_limit = true;
  bool uid_separation = true;  // guest and commands of different uids
  bool seccomp = true;
  bool landlock = true;
};

struct SandboxSpec {
  std::string backend = "local";
  std::string profile = "default";
  std::string rootfs;                   // directory of the host; empty: the backend's own root
  std::string work_dir = "/workspace";  // absolute
  std::string home_dir = "/home/user";
  WorkspaceMode workspace = WorkspaceMode::kEphemeral;
  std::vector<std::string> writable_paths;  // besides work_dir, home_dir, /tmp and /var/tmp
  // Directories that commands read and cannot change; filled with the calls of sets.
  std::vector<std::string> read_only_sets;
  NetworkMode network = NetworkMode::kClosed;
  Resources resources;
  Lifetimes lifetimes;
  Transfer transfer;
  Requirements requirements;
  std::map<std::string, std::string> env;  // of every command
};

// The built-in profiles: `default` requires all of Requirements; `default-rootless` lets a host
// without delegated cgroups or subordinate uids go without limits and uid separation. Nothing is
// chosen silently: a refusal names the profile that would do. kNotFound for another name.
Result<SandboxSpec> BuiltInProfile(std::string_view name);

// Checks that do not depend on a backend: paths absolute and normal, limits positive, mode and
// option combinations. The message names the field.
Result<void> ValidateSpec(const SandboxSpec& spec);

// {"in": {"max_files", …}, "out": {…}}: the same to callers, in the ledger and for the guest.
json::object TransferToJson(const Transfer& transfer);

}  // namespace caisson::sandbox
