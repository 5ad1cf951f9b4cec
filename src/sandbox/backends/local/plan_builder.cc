#include "sandbox/backends/local/plan_builder.h"

#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "sandbox/backends/local/rootfs.h"

namespace caisson::sandbox::local {
namespace {

using launcher::CgroupDir;
using launcher::LaunchPlan;
using launcher::MountStep;
using Op = launcher::MountStep::Op;

constexpr std::string_view kHostname = "sandbox";
// Where the tmpfs of all writable paths is mounted before its directories are bound to their
// places; masked afterwards. In /dev, where no writable path of a spec can lie.
constexpr std::string_view kDisk = "dev/.disk";
constexpr uint32_t kTtyGroup = 5;

class PlanBuilder {
 public:
  PlanBuilder(const HostFacts& facts, const SandboxSpec& spec, const SandboxPaths& paths)
      : facts_(facts), spec_(spec), paths_(paths), user_(CommandUserOf(facts, paths)) {}

  Result<LaunchPlan> Build(std::string_view outer_filter) {
    plan_.name = paths_.id;
    plan_.hostname = kHostname;
    plan_.stage_dir = paths_.stage_dir;
    plan_.namespaces =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
    plan_.environment = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"};
    CAISSON_TRY(Identity());
    Cgroups();
    CAISSON_TRY(Root());
    Devices();
    Proc();
    Disk();
    plan_.mounts.push_back(Step(Op::kReadOnly, ""));
    Limits();
    if (facts_.landlock.available) Landlock();
    if (facts_.seccomp.available) plan_.outer_filter = outer_filter;
    return std::move(plan_);
  }

 private:
  static MountStep Step(Op op, std::string_view target, std::string_view source = {}) {
    MountStep step;
    step.op = op;
    step.target = target;
    step.source = source;
    step.uid = step.gid = 0;
    return step;
  }
  void Bind(std::string_view target, std::string_view source) {
    MountStep step = Step(Op::kBind, target, source);
    step.read_only = true;
    plan_.mounts.push_back(std::move(step));
  }
  void File(std::string_view target, std::string content) {
    MountStep step = Step(Op::kFile, target);
    step.content = std::move(content);
    step.mode = 0644;
    step.uid = GuestUid();
    step.gid = GuestGid();
    plan_.mounts.push_back(std::move(step));
  }
  uint32_t GuestUid() const { return facts_.root ? paths_.uid_base : facts_.uid; }
  uint32_t GuestGid() const { return facts_.root ? paths_.uid_base : facts_.gid; }

  Result<void> Identity() {
    if (!facts_.root) {
      plan_.user_namespace_first = true;
      plan_.uid_map = {{0, facts_.uid, 1}};
      plan_.gid_map = {{0, facts_.gid, 1}};
      // Commands have the guest's uid, 0 inside, and would get every capability that is kept.
      plan_.keep_capabilities = 0;
      return {};
    }
    uint64_t first = paths_.uid_base;
    bool exists = std::ranges::any_of(facts_.own_ids, [&](const IdRange& range) {
      return first >= range.first && first + kIdsPerSandbox <= range.first + range.count;
    });
    if (first < kIdsPerSandbox || !exists) {
      return Fail(ErrorCode::kHostUnsupported, "the uids " + std::to_string(first) + " to " +
                                                   std::to_string(first + kIdsPerSandbox - 1) +
                                                   " cannot be given to a sandbox on this host");
    }
    plan_.uid_map = {{0, paths_.uid_base, kIdsPerSandbox}};
    plan_.gid_map = plan_.uid_map;
    // To become the command user, and to end its processes.
    plan_.keep_capabilities = 1ull << CAP_SETUID | 1ull << CAP_SETGID | 1ull << CAP_KILL;
    return {};
  }

  void Cgroups() {
    const CgroupFacts& host = facts_.cgroups;
    const Resources& limits = spec_.resources;
    std::string memory = std::to_string(limits.memory_bytes);
    uint64_t guest_bytes = kGuestMemoryBytes + limits.disk_bytes;
    std::string guest_memory = std::to_string(guest_bytes);
    // One more than asked for: the guest's spawner sits among the commands.
    std::string pids = std::to_string(limits.pids + 1);
    constexpr uint64_t kPeriodUs = 100'000;
    std::string period = std::to_string(kPeriodUs);
    std::string quota = std::to_string(
        std::max<uint64_t>(1000, static_cast<uint64_t>(std::llround(limits.cpus * kPeriodUs))));

    if (!host.v2_parent.empty()) {
      std::string controllers;
      CgroupDir command;
      CgroupDir guest;
      if (host.v2_memory) {
        controllers += " +memory";
        command.writes.push_back({"memory.max", memory});
        command.writes.push_back({"memory.swap.max", "0", false});
        guest.writes.push_back({"memory.max", guest_memory});
        guest.writes.push_back({"memory.swap.max", "0", false});
        command.memory_events = "memory.events";
      }
      if (host.v2_cpu) {
        controllers += " +cpu";
        command.writes.push_back({"cpu.max", quota + " " + period});
      }
      if (host.v2_pids) {
        controllers += " +pids";
        command.writes.push_back({"pids.max", pids});
        guest.writes.push_back({"pids.max", std::to_string(kGuestPids)});
      }
      // One child a command and no deeper; without it the guest could make the kernel keep many.
      command.writes.push_back({"cgroup.max.depth", "1", false});
      command.writes.push_back({"cgroup.max.descendants", "1024", false});
      command.delegate = true;
      if (controllers.empty()) {
        AddCgroup(host.v2_parent, {}, std::move(command));
      } else {
        CgroupDir top;
        top.writes.push_back({"cgroup.subtree_control", controllers.substr(1)});
        AddCgroup(host.v2_parent, std::move(top), std::move(command), std::move(guest));
      }
    }
    if (!host.v1_memory.empty()) {
      std::string all_memory = std::to_string(limits.memory_bytes + guest_bytes);
      CgroupDir command;
      CgroupDir top;
      command.writes = {{"memory.limit_in_bytes", memory},
                        {"memory.memsw.limit_in_bytes", memory, false}};
      top.writes = {{"memory.limit_in_bytes", all_memory},
                    {"memory.memsw.limit_in_bytes", all_memory, false}};
      command.memory_events = "memory.oom_control";
      AddCgroup(host.v1_memory, std::move(top), std::move(command));
    }
    if (!host.v1_cpu.empty()) {
      CgroupDir command;
      command.writes = {{"cpu.cfs_period_us", period}, {"cpu.cfs_quota_us", quota}};
      AddCgroup(host.v1_cpu, std::move(command));
    }
    if (!host.v1_pids.empty()) {
      CgroupDir command;
      CgroupDir top;
      command.writes = {{"pids.max", pids}};
      top.writes = {{"pids.max", std::to_string(limits.pids + 1 + kGuestPids)}};
      AddCgroup(host.v1_pids, std::move(top), std::move(command));
    }
    if (!host.v1_freezer.empty()) AddCgroup(host.v1_freezer, CgroupDir());
  }

  // <parent>/caisson-<id>/{cmd,guest}: where v2 has controllers, which allow no process above the
  // leaves.
  void AddCgroup(const std::string& parent, CgroupDir top, CgroupDir command, CgroupDir guest) {
    top.path = parent + "/caisson-" + paths_.id;
    command.path = top.path + "/cmd";
    guest.path = top.path + "/guest";
    top.role = CgroupDir::Role::kParent;
    command.role = CgroupDir::Role::kCommand;
    guest.role = CgroupDir::Role::kGuest;
    plan_.cgroups.push_back(std::move(top));
    plan_.cgroups.push_back(std::move(command));
    plan_.cgroups.push_back(std::move(guest));
  }

  // <parent>/caisson-<id>/cmd, the guest above it: its limits are those of the whole sandbox, of
  // which commands can use no more than theirs.
  void AddCgroup(const std::string& parent, CgroupDir top, CgroupDir command) {
    top.path = parent + "/caisson-" + paths_.id;
    top.role = CgroupDir::Role::kGuest;
    command.path = top.path + "/cmd";
    command.role = CgroupDir::Role::kCommand;
    plan_.cgroups.push_back(std::move(top));
    plan_.cgroups.push_back(std::move(command));
  }

  // <parent>/caisson-<id>, for what concerns commands alone. The guest stays in the launcher's:
  // each directory costs creation and removal 50 us.
  void AddCgroup(const std::string& parent, CgroupDir command) {
    command.path = parent + "/caisson-" + paths_.id;
    command.role = CgroupDir::Role::kCommand;
    plan_.cgroups.push_back(std::move(command));
  }

  Result<void> Root() {
    if (spec_.rootfs.empty()) {
      HostRoot();
    } else {
      std::set<std::string> own{"dev",          "proc",           "run",       "tmp",
                                "var/tmp",      "etc/passwd",     "etc/group", "etc/hosts",
                                "etc/hostname", "etc/resolv.conf"};
      for (const std::string& path : WritablePaths()) own.insert(path);
      for (const std::string& path : spec_.read_only_sets) own.insert(path.substr(1));
      CAISSON_ASSIGN(plan_.mounts, MirrorRootfs(spec_.rootfs, own));
    }
    EtcFiles();
    plan_.mounts.push_back(Step(Op::kDirectory, "run"));
    return {};
  }

  void HostRoot() {
    Bind("usr", "/usr");
    for (const HostLayout::Entry& entry : facts_.layout.top) Show(entry.name, entry);
    for (const HostLayout::Entry& entry : facts_.layout.etc) Show("etc/" + entry.name, entry);
    File("etc/nsswitch.conf",
         "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"
         "services: files\nprotocols: files\n");
  }

  // A link is made anew, and so leads nowhere but to what the sandbox has.
  void Show(const std::string& path, const HostLayout::Entry& entry) {
    if (entry.link.empty()) {
      Bind(path, "/" + path);
    } else {
      plan_.mounts.push_back(Step(Op::kSymlink, path, entry.link));
    }
  }

  // The users of the image stay; the sandbox's own come first and win.
  void EtcFiles() {
    std::string id = std::to_string(user_.inside);
    std::string passwd;
    std::string group;
    if (user_.inside != 0) {
      passwd = "root:x:0:0:root:/root:/bin/sh\n";
      group = "root:x:0:\ntty:x:5:\n";
    }
    passwd += "user:x:" + id + ":" + id + ":user:" + spec_.home_dir + ":/bin/sh\n";
    group += "user:x:" + id + ":\n";
    std::string image_passwd;
    std::string image_group;
    if (!spec_.rootfs.empty()) {
      image_passwd = ReadRootfsFile(spec_.rootfs, "etc/passwd");
      image_group = ReadRootfsFile(spec_.rootfs, "etc/group");
    }
    constexpr std::string_view kNobody = "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
    File("etc/passwd", passwd + (image_passwd.empty() ? std::string(kNobody) : image_passwd));
    File("etc/group", group + (image_group.empty() ? "nogroup:x:65534:\n" : image_group));
    std::string name(kHostname);
    File("etc/hostname", name + "\n");
    File("etc/hosts", "127.0.0.1 localhost " + name + "\n::1 localhost ip6-localhost\n");
    File("etc/resolv.conf", "");  // closed: no resolver, and none of an image
  }

  void Devices() {
    MountStep dev = Step(Op::kTmpfs, "dev");
    dev.size_bytes = 64 << 10;
    dev.inodes = 64;
    dev.no_exec = true;
    plan_.mounts.push_back(dev);
    for (std::string_view name : {"null", "zero", "full", "random", "urandom", "tty"}) {
      MountStep node = Step(Op::kBind, "dev/" + std::string(name), "/dev/" + std::string(name));
      node.allow_devices = true;
      node.no_exec = true;
      node.optional = name == "tty";
      plan_.mounts.push_back(std::move(node));
    }
    MountStep pts = Step(Op::kDevPts, "dev/pts");
    if (facts_.root) pts.gid = paths_.uid_base + kTtyGroup;
    plan_.mounts.push_back(pts);
    plan_.mounts.push_back(Step(Op::kSymlink, "dev/ptmx", "pts/ptmx"));
    plan_.mounts.push_back(Step(Op::kSymlink, "dev/fd", "/proc/self/fd"));
    plan_.mounts.push_back(Step(Op::kSymlink, "dev/stdin", "/proc/self/fd/0"));
    plan_.mounts.push_back(Step(Op::kSymlink, "dev/stdout", "/proc/self/fd/1"));
    plan_.mounts.push_back(Step(Op::kSymlink, "dev/stderr", "/proc/self/fd/2"));
  }

  // The same paths as runc's default.
  void Proc() {
    plan_.mounts.push_back(Step(Op::kProc, "proc"));
    for (std::string_view name : {"acpi", "asound", "kcore", "keys", "latency_stats", "timer_list",
                                  "timer_stats", "sched_debug", "scsi", "kmsg", "kallsyms"}) {
      MountStep mask = Step(Op::kMask, "proc/" + std::string(name));
      mask.optional = true;
      plan_.mounts.push_back(std::move(mask));
    }
    for (std::string_view name : {"bus", "fs", "irq", "sys", "sysrq-trigger"}) {
      MountStep part = Step(Op::kReadOnly, "proc/" + std::string(name));
      part.optional = true;
      plan_.mounts.push_back(std::move(part));
    }
  }

  // Relative to the root. Those of spec.writable_paths are outside /dev, /proc and the like.
  std::vector<std::string> WritablePaths() const {
    std::vector<std::string> paths{spec_.work_dir.substr(1), spec_.home_dir.substr(1)};
    for (const std::string& path : spec_.writable_paths) paths.push_back(path.substr(1));
    return paths;
  }

  void Disk() {
    MountStep disk = Step(Op::kTmpfs, kDisk);
    disk.size_bytes = spec_.resources.disk_bytes;
    // A file takes a page at least; without a limit empty files would take the kernel's memory.
    disk.inodes = std::clamp<uint64_t>(disk.size_bytes / 4096, 1024, 1 << 20);
    plan_.mounts.push_back(disk);
    size_t count = 0;
    enum class Owner : uint8_t { kGuest, kCommands };
    auto place = [&](const std::string& target, uint32_t mode, Owner owner, bool no_exec) {
      MountStep dir = Step(Op::kDirectory, std::string(kDisk) + "/" + std::to_string(count++));
      dir.mode = mode;
      dir.uid = owner == Owner::kGuest ? GuestUid() : user_.host_uid;
      dir.gid = owner == Owner::kGuest ? GuestGid() : user_.host_gid;
      MountStep bind = Step(Op::kBind, target, dir.target);
      bind.no_exec = no_exec;
      plan_.mounts.push_back(std::move(dir));
      plan_.mounts.push_back(std::move(bind));
      writable_.push_back("/" + target);
    };
    for (const std::string& path : WritablePaths()) {
      if (path == spec_.work_dir.substr(1) && !paths_.workspace_dir.empty()) {
        plan_.mounts.push_back(Step(Op::kBind, path, paths_.workspace_dir));
        writable_.push_back("/" + path);
      } else {
        place(path, 0755, Owner::kCommands, false);
      }
    }
    for (size_t i = 0; i < spec_.read_only_sets.size(); i++) {
      place(SetStore(i), 0755, Owner::kGuest, false);
      plan_.mounts.push_back(
          Step(Op::kSymlink, spec_.read_only_sets[i].substr(1), "/" + SetStore(i) + "/current"));
    }
    place("tmp", 01777, Owner::kGuest, false);
    place("var/tmp", 01777, Owner::kGuest, false);
    place("dev/shm", 01777, Owner::kGuest, true);
    plan_.mounts.push_back(Step(Op::kMask, kDisk));
    plan_.mounts.push_back(Step(Op::kReadOnly, "dev"));
  }

  void Limits() {
    uint64_t files = spec_.resources.open_files;
    if (facts_.max_open_files != 0) files = std::min(files, facts_.max_open_files);
    // One byte and not none: that alone also keeps the kernel from starting a host's core handler
    // (kernel.core_pattern with a pipe) for a process of the sandbox.
    plan_.limits = {{RLIMIT_NOFILE, files, files}, {RLIMIT_CORE, 1, 1}};
  }

  // A second wall around the same paths, which holds even where a mount could be undone.
  void Landlock() {
    constexpr uint64_t kRead =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    constexpr uint64_t kRefer = 1 << 13;                    // since ABI 2
    constexpr uint64_t kTruncate = 1 << 14;                 // 3
    constexpr uint64_t kIoctl = 1 << 15;                    // 5
    constexpr uint64_t kAbstractSockets = 1, kSignals = 2;  // 6
    int abi = facts_.landlock_abi;
    plan_.landlock_fs = (1 << 13) - 1;
    if (abi >= 2) plan_.landlock_fs |= kRefer;
    if (abi >= 3) plan_.landlock_fs |= kTruncate;
    if (abi >= 5) plan_.landlock_fs |= kIoctl;
    if (abi >= 6) plan_.landlock_scoped = kAbstractSockets | kSignals;
    auto rule = [&](std::string path, uint64_t access) {
      plan_.landlock_rules.push_back({std::move(path), access & plan_.landlock_fs});
    };
    rule("/", kRead);
    rule("/dev", kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate | kIoctl);
    // A process's own files there (oom_score_adj, comm); the rest is read-only or not its own.
    rule("/proc", kRead | LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate);
    for (const std::string& path : writable_) {
      // Devices cannot be made there: without capabilities, and on a nodev mount.
      rule(path, ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK});
    }
  }

  const HostFacts& facts_;
  const SandboxSpec& spec_;
  const SandboxPaths& paths_;
  CommandUser user_;
  LaunchPlan plan_;
  std::vector<std::string> writable_;  // absolute, inside
};

bool IsId(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

}  // namespace

CommandUser CommandUserOf(const HostFacts& facts, const SandboxPaths& paths) {
  if (!facts.root) return {0, facts.uid, facts.gid};
  return {kCommandId, paths.uid_base + kCommandId, paths.uid_base + kCommandId};
}

std::string SetStore(size_t i) { return "run/caisson/sets/" + std::to_string(i); }

Result<LaunchPlan> BuildLaunchPlan(const HostFacts& facts, const SandboxSpec& spec,
                                   const SandboxPaths& paths, std::string_view outer_filter) {
  if (!IsId(paths.id)) return Fail(ErrorCode::kInvalidArgument, "the sandbox id is not usable");
  CAISSON_TRY(CheckHost(facts, spec, !paths.workspace_dir.empty()));
  return PlanBuilder(facts, spec, paths).Build(outer_filter);
}

}  // namespace caisson::sandbox::local
