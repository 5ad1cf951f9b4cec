// The launch plan: everything caisson-launcher needs to make one local sandbox, as plain data.
//
// The server decides (which mounts, limits, filters); the launcher only carries out, in the fixed
// order of kLaunchSteps, and reports the first step that failed. A plan is encoded to bytes, put
// into a sealed memfd and passed over the launcher's socket (launcher/protocol.h). Both ends are of
// one build; the version guards against a mix.
//
// Freestanding: compiled into the launcher (musl, no exceptions) and the server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::launcher {

inline constexpr uint32_t kPlanVersion = 2;
inline constexpr size_t kMaxPlanBytes = 1 << 20;

// What is done, in this order. Steps before kClone run in the launcher, the rest in the new
// process; from kSpawner on in two of them, the guest and its spawner, each for itself.
enum class LaunchStep : uint8_t {
  kDecodePlan,
  kCgroups,       // make the cgroup directories, write limits
  kClone,         // clone3 with the namespaces
  kUserMapEarly,  // rootless only: the user namespace was made by kClone
  kCgroupGuest,   // the new process joins the guest's cgroups
  kNetwork,       // loopback up
  kMounts,        // the new root, see MountStep
  kPivot,         // pivot_root, old root unmounted
  kHostname,
  kUserNamespace,  // rooted only: unshare(CLONE_NEWUSER) after all mounts, so that nothing inside
                   // owns the mount, network, pid or uts namespace; then the maps
  kLandlock,       // one domain for all: its scopes keep signals inside it
  kSpawner,        // a second process is born into the command cgroups. Nobody is moved between
                   // cgroups: moving another process waits for an RCU grace period (6-13 ms)
  kIdentity,       // uid, gid, no supplementary groups
  kLimits,         // resource limits
  kCapabilities,   // bounding set reduced, no_new_privs
  kSeccomp,        // the outer filter
  kExecGuest,
  kGuestReady,  // the guest said kSyncReady
};
inline constexpr std::array<std::string_view, 18> kLaunchStepNames{
    "decode_plan", "cgroups", "clone",        "user_map_early", "cgroup_guest", "network",
    "mounts",      "pivot",   "hostname",     "user_namespace", "landlock",     "spawner",
    "identity",    "limits",  "capabilities", "seccomp",        "exec_guest",   "guest_ready"};
constexpr std::string_view NameOf(LaunchStep step) {
  return kLaunchStepNames[static_cast<size_t>(step)];
}

struct IdMap {
  uint32_t inside = 0;
  uint32_t outside = 0;
  uint32_t count = 0;
};

// One entry of the new root, made in order. `target` is relative to the new root, without leading
// slash; it is resolved inside the new root only (openat2, RESOLVE_IN_ROOT): a root directory may
// be hostile and its links must not lead out. Missing parents are made (0755).
struct MountStep {
  enum class Op : uint8_t {
    kBind,    // `source`: a file or directory, with everything mounted below it. Absolute: of the
              // host, and its last component is no link. Relative: of the new root, as built so far
    kTmpfs,   // size `size_bytes`, inodes `inodes` (0: kernel default), `mode`, `uid`, `gid`
    kProc,    // of the new pid namespace
    kDevPts,  // a new instance
    kDirectory,  // mkdir with `mode`, `uid`, `gid`
    kSymlink,    // link text `source`
    kFile,       // a new file with `content`, `mode`, `uid`, `gid`
    kMask,       // something empty and unreadable over `target`: /dev/null or an empty directory
    kReadOnly,   // what is at `target` (empty: the root) becomes read-only, with `recursive` the
                 // mounts below it too; a plain directory or file is first mounted over itself
  };
  Op op = Op::kBind;
  std::string target;
  std::string source;
  std::string content;
  uint64_t size_bytes = 0;
  uint64_t inodes = 0;
  uint32_t mode = 0755;
  uint32_t uid = 0;  // as the host counts
  uint32_t gid = 0;
  bool read_only = false;      // kBind, kTmpfs
  bool no_exec = false;        // kBind, kTmpfs
  bool allow_devices = false;  // kBind of a device node; everything else is nodev
  bool recursive = false;      // kReadOnly
  bool optional = false;  // kBind, kMask, kReadOnly: skipped when source or target does not exist
};

// One directory of one cgroup hierarchy, made before the sandbox and removed after it, the last
// one first. Absolute paths of the host.
struct CgroupDir {
  enum class Role : uint8_t { kParent, kCommand, kGuest };
  struct Write {
    std::string file;  // e.g. "memory.max"
    std::string value;
    bool required = true;  // false: a host without this control file is accepted
  };
  std::string path;
  Role role = Role::kParent;
  std::vector<Write> writes;
  // The command directory of the v2 tree: delegated to the guest (directory and cgroup.procs owned
  // by the sandbox's root), which gets a descriptor of it and makes one directory an exec.
  bool delegate = false;
  // A file of this directory that the guest gets read-only as evidence of the out-of-memory killer:
  // "memory.events" (v2) or "memory.oom_control" (v1). At most one in a plan.
  std::string memory_events;
};

struct LandlockRule {
  std::string path;     // in the new root
  uint64_t access = 0;  // LANDLOCK_ACCESS_FS_*
};

struct ResourceLimit {
  uint32_t resource = 0;  // RLIMIT_*
  uint64_t soft = 0;
  uint64_t hard = 0;
};

struct LaunchPlan {
  std::string name;  // the sandbox's id; names messages
  std::string hostname;
  std::string stage_dir;    // an existing empty directory of the host, where the new root is built
  uint64_t namespaces = 0;  // CLONE_NEW* for clone3, without CLONE_NEWUSER
  // True: CLONE_NEWUSER goes into clone3, because an unprivileged launcher can make the others only
  // inside it. False: it is unshared last.
  bool user_namespace_first = false;
  std::vector<IdMap> uid_map;
  std::vector<IdMap> gid_map;
  uint32_t guest_uid = 0;  // inside
  uint32_t guest_gid = 0;
  // Killed by the kernel when the launcher dies (`caisson exec` without a server).
  bool die_with_launcher = false;
  std::vector<CgroupDir> cgroups;
  std::string root_dir;  // a directory of the host as the (read-only) root; empty: a new tmpfs
  uint64_t root_tmpfs_bytes = 1 << 20;  // of that tmpfs
  std::vector<MountStep> mounts;
  std::vector<ResourceLimit> limits;
  uint64_t keep_capabilities = 0;  // bit mask of the bounding set that the guest keeps
  uint64_t landlock_fs = 0;        // handled access; 0: no Landlock
  uint64_t landlock_net = 0;
  uint64_t landlock_scoped = 0;
  std::vector<LandlockRule> landlock_rules;
  std::string outer_filter;              // struct sock_filter[]; empty: none
  std::vector<std::string> environment;  // of the guest; the launcher adds the descriptor numbers
};

// The bytes of a plan, and back. Decode refuses another version, a truncated or over-long text and
// counts over sane bounds with kInvalidArgument; it never reads past the end.
std::string EncodePlan(const LaunchPlan& plan);
Result<LaunchPlan> DecodePlan(std::string_view bytes);

}  // namespace caisson::launcher
