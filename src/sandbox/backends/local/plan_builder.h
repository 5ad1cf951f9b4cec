// From a spec to a launch plan: which root, limits and walls a local sandbox gets on this host.
//
// The root is a small tmpfs. Without an image it holds the host's /usr, read-only, and a
// synthesised /etc; with spec.rootfs the image's entries are bound into it, read-only, so that
// private directories can be laid among them without touching the image (rootfs.h). All of it
// becomes read-only but the writable paths.
//
// Disk: all writable paths (work_dir, home_dir, /tmp, /var/tmp, /dev/shm and spec.writable_paths)
// and the stores of read-only sets are directories of ONE tmpfs of resources.disk_bytes, so their
// sum is limited and none has a share of its own. Its pages count as memory of whoever writes them
// first: of the commands (within resources.memory_bytes) or of the guest, whose own limit is
// therefore 64 MiB + disk_bytes. A sandbox takes at most memory_bytes + disk_bytes + 64 MiB. A
// workspace directory of the host is bound instead of the work_dir; the kernel does not limit its
// size, so that a spec that requires the disk limit is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "launcher/plan.h"
#include "sandbox/backends/local/host.h"
#include "sandbox/spec.h"

namespace caisson::sandbox::local {

inline constexpr uint32_t kIdsPerSandbox = 65536;
inline constexpr uint32_t kCommandId = 1000;  // uid and gid of commands inside, when separated
inline constexpr uint64_t kGuestMemoryBytes = 64ull << 20;
inline constexpr uint32_t kGuestPids = 64;

struct SandboxPaths {
  std::string id;             // [A-Za-z0-9_-], at most 64; names the cgroups
  std::string stage_dir;      // an existing empty directory
  std::string workspace_dir;  // host directory for work_dir; empty: part of the tmpfs
  uint32_t uid_base = 0;      // first of kIdsPerSandbox host uids and gids (as root)
};

// The ids of commands, inside and as the host counts.
struct CommandUser {
  uint32_t inside = 0;
  uint32_t host_uid = 0;
  uint32_t host_gid = 0;
};
CommandUser CommandUserOf(const HostFacts& facts, const SandboxPaths& paths);

// Reads only spec.rootfs. `outer_filter` is CompileFilter(kOuter). The spec is valid.
// Refusals: kHostUnsupported, kLimitNotEnforced, kIsolationNotPermitted, kEgressNotEnforced; the
// message says what lacks and why, and names the profile default-rootless where that would do.
Result<launcher::LaunchPlan> BuildLaunchPlan(const HostFacts& facts, const SandboxSpec& spec,
                                             const SandboxPaths& paths,
                                             std::string_view outer_filter);

// Where the guest keeps the i-th of spec.read_only_sets; relative to the root.
std::string SetStore(size_t i);

// The check alone, for `explain`: nothing when this host can hold `spec`.
Result<void> CheckHost(const HostFacts& facts, const SandboxSpec& spec, bool host_workspace);

}  // namespace caisson::sandbox::local
