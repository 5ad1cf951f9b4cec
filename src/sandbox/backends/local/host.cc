#include "sandbox/backends/local/host.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <sstream>

#include "base/subprocess.h"
#include "base/syscall.h"
#include "base/unique_fd.h"

namespace caisson::sandbox::local {
namespace {

std::string ReadOrEmpty(const std::string& path) {
  return ReadWholeFile(path, 16 << 20).value_or(std::string());
}

struct NeededCapability {
  int number;
  std::string_view name;
};
// What the launcher's steps take outside of a new user namespace.
constexpr std::array<NeededCapability, 8> kNeeded{{{CAP_SYS_ADMIN, "SYS_ADMIN"},
                                                   {CAP_SETUID, "SETUID"},
                                                   {CAP_SETGID, "SETGID"},
                                                   {CAP_SETPCAP, "SETPCAP"},
                                                   {CAP_CHOWN, "CHOWN"},
                                                   {CAP_DAC_OVERRIDE, "DAC_OVERRIDE"},
                                                   {CAP_KILL, "KILL"},
                                                   {CAP_NET_ADMIN, "NET_ADMIN"}}};

void ProbeRoot(HostFacts& facts) {
  facts.uid = geteuid();
  facts.gid = getegid();
  if (facts.uid != 0) {
    facts.root_reason = "the server does not run as root";
    return;
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  syscall(SYS_capget, &header, sets);
  for (const NeededCapability& needed : kNeeded) {
    if ((sets[needed.number / 32].effective >> (needed.number % 32) & 1) == 0) {
      facts.root_reason = "root lacks the capability CAP_" + std::string(needed.name);
      return;
    }
  }
  facts.root = true;
}

void ProbeIds(HostFacts& facts) {
  std::istringstream lines(ReadOrEmpty("/proc/self/uid_map"));
  uint64_t inside = 0;
  uint64_t outside = 0;
  uint64_t count = 0;
  while (lines >> inside >> outside >> count) {
    facts.own_ids.push_back({static_cast<uint32_t>(inside), count});
  }
}

// The root is a plain directory and not where something is mounted.
bool InChroot() {
  struct statx info{};
  return statx(AT_FDCWD, "/", 0, 0, &info) == 0 &&
         (info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0;
}

// By the launcher, which is made for that: this process is large, has threads, and never forks.
Ability ProbeNamespaces(const std::string& launcher, bool rooted) {
  constexpr Millis kPatience{10'000};
  SystemClock clock;
  SpawnSpec spec;
  spec.program = launcher;
  spec.arguments = {"--probe", rooted ? "root" : "rootless"};
  auto tried = RunCommand(spec, "", 4096, clock, Deadline::After(clock, kPatience));
  if (!tried) return {false, "caisson-launcher cannot be run: " + tried.error().message};
  if (tried->status.ok()) return {true, ""};
  int number = 0;
  std::string what = "caisson-launcher ended without a reason";
  if (size_t space = tried->out.find(' '); space != std::string::npos) {
    number = std::atoi(tried->out.c_str());
    what = tried->out.substr(space + 1, tried->out.find('\n') - space - 1);
  }
  std::string reason = "namespaces cannot be made: " + what + ": " + ErrnoName(number);
  if (ReadOrEmpty("/proc/sys/user/max_user_namespaces") == "0\n") {
    reason += " (user.max_user_namespaces is 0)";
  } else if (ReadOrEmpty("/proc/sys/kernel/unprivileged_userns_clone") == "0\n") {
    reason += " (kernel.unprivileged_userns_clone is 0)";
  } else if (ReadOrEmpty("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1\n") {
    reason += " (kernel.apparmor_restrict_unprivileged_userns is 1)";
  } else if (InChroot()) {
    reason += " (this is a chroot, where the kernel refuses them; enter it by pivot_root instead)";
  }
  return {false, reason};
}

void ProbeLandlock(HostFacts& facts) {
  long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi > 0) {
    facts.landlock_abi = static_cast<int>(abi);
    facts.landlock.available = true;
  } else {
    facts.landlock.reason =
        errno == EOPNOTSUPP ? "Landlock is disabled at boot (lsm=)" : "the kernel has no Landlock";
  }
}

Ability ProbeSeccomp() {
  uint32_t action = SECCOMP_RET_KILL_PROCESS;
  if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0) return {true, ""};
  return {false, "the kernel has no seccomp filters: " + ErrnoName(errno)};
}

std::vector<HostLayout::Entry> Present(const std::filesystem::path& dir,
                                       std::initializer_list<const char*> names) {
  std::vector<HostLayout::Entry> present;
  std::error_code error;
  for (const char* name : names) {
    std::filesystem::file_status status = std::filesystem::symlink_status(dir / name, error);
    if (!std::filesystem::exists(status)) continue;
    std::string link;
    if (std::filesystem::is_symlink(status)) {
      link = std::filesystem::read_symlink(dir / name, error).string();
      if (link.empty()) continue;
    }
    present.push_back({name, link});
  }
  return present;
}

HostLayout ProbeLayout() {
  // The dynamic linker's, what the links in /usr/bin go through, and public certificates. Private
  // keys lie beside the last ones, so only these directories.
  return {Present("/", {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}),
          Present("/etc", {"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs",
                           "ca-certificates", "ca-certificates.conf", "pki/tls/certs",
                           "pki/ca-trust/extracted", "localtime"})};
}

}  // namespace

HostFacts ProbeHost(const std::string& launcher) {
  HostFacts facts;
  ProbeRoot(facts);
  ProbeIds(facts);
  facts.namespaces = ProbeNamespaces(launcher, facts.root);
  CgroupView view;
  view.read = ReadOrEmpty;
  view.writable = [](const std::string& path) {
    return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
  };
  view.delegated = [](const std::string& path) {
    char value = 0;
    for (const char* name : {"user.delegate", "trusted.delegate"}) {
      if (getxattr(path.c_str(), name, &value, 1) == 1 && value == '1') return true;
    }
    return false;
  };
  facts.cgroups = ChooseCgroups(ReadOrEmpty("/proc/self/mountinfo"),
                                ReadOrEmpty("/proc/self/cgroup"), view, facts.root);
  facts.seccomp = ProbeSeccomp();
  ProbeLandlock(facts);
  struct rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) facts.max_open_files = files.rlim_max;
  facts.layout = ProbeLayout();
  return facts;
}

Result<void> PrepareCgroups(const CgroupPreparation& preparation) {
  for (const std::string& dir : preparation.make) {
    if (mkdir(dir.c_str(), 0755) < 0 && errno != EEXIST) {
      return Fail(ErrnoError(errno, "mkdir " + dir));
    }
  }
  if (!preparation.move_to.empty()) {
    // Until none is left: processes may fork meanwhile.
    for (int round = 0; round < 10; round++) {
      CAISSON_ASSIGN(std::string processes,
                     ReadWholeFile(preparation.move_from + "/cgroup.procs", 16 << 20));
      if (processes.empty()) break;
      std::istringstream lines(processes);
      for (std::string pid; std::getline(lines, pid);) {
        // One that has ended meanwhile, or that the kernel holds there, is no error here: the next
        // step says whether it matters.
        static_cast<void>(WriteControlFile(preparation.move_to + "/cgroup.procs", pid));
      }
    }
  }
  for (const auto& [file, value] : preparation.writes) {
    CAISSON_TRY(WriteControlFile(file, value));
  }
  return {};
}

Isolation IsolationOf(const HostFacts& facts) {
  if (!facts.namespaces.available) return Isolation::kNone;
  bool hardened = facts.root && facts.seccomp.available && facts.landlock.available;
  return hardened ? Isolation::kHardenedContainer : Isolation::kContainer;
}

}  // namespace caisson::sandbox::local
