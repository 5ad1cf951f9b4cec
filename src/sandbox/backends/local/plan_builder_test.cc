#include "sandbox/backends/local/plan_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sandbox/backends/local/rootfs.h"

namespace caisson::sandbox::local {
namespace {

namespace fs = std::filesystem;
using launcher::CgroupDir;
using launcher::LaunchPlan;
using launcher::MountStep;
using ::testing::HasSubstr;
using ::testing::Not;
using Op = MountStep::Op;

const Ability kYes{true, ""};

// A host that has everything, on pure v2.
HostFacts FullHost() {
  HostFacts facts;
  facts.root = true;
  facts.own_ids = {{0, 4294967295}};
  facts.namespaces = facts.seccomp = facts.landlock = kYes;
  facts.landlock_abi = 7;
  facts.max_open_files = 1 << 20;
  facts.cgroups.v2_parent = "/sys/fs/cgroup/caisson";
  facts.cgroups.v2_memory = facts.cgroups.v2_cpu = facts.cgroups.v2_pids = true;
  facts.cgroups.memory = facts.cgroups.cpu = facts.cgroups.pids = facts.cgroups.tree = kYes;
  facts.layout.top = {{"bin", "usr/bin"}, {"lib64", ""}};
  facts.layout.etc = {
      {"ld.so.cache", ""}, {"ssl/certs", ""}, {"localtime", "/usr/share/zoneinfo/UTC"}};
  return facts;
}

HostFacts RootlessHost() {
  HostFacts facts = FullHost();
  facts.root = false;
  facts.root_reason = "the server does not run as root";
  facts.uid = 1234;
  facts.gid = 99;
  facts.cgroups = {};
  facts.cgroups.memory.reason = facts.cgroups.cpu.reason = facts.cgroups.pids.reason =
      "nothing is delegated";
  return facts;
}

SandboxSpec Default() { return BuiltInProfile("default").value(); }
SandboxPaths Paths() { return {"sb_1", "/state/stage", "", 1'000'000}; }

LaunchPlan Build(const HostFacts& facts, const SandboxSpec& spec,
                 const SandboxPaths& paths = Paths()) {
  Result<LaunchPlan> plan = BuildLaunchPlan(facts, spec, paths, "filter--");
  EXPECT_TRUE(plan.has_value()) << plan.error().ToString();
  return plan ? *plan : LaunchPlan{};
}
Error Refusal(const HostFacts& facts, const SandboxSpec& spec,
              const SandboxPaths& paths = Paths()) {
  Result<LaunchPlan> plan = BuildLaunchPlan(facts, spec, paths, "filter--");
  EXPECT_FALSE(plan.has_value());
  return plan ? Error{} : plan.error();
}

const MountStep* Find(const LaunchPlan& plan, const std::string& target, Op op) {
  for (const MountStep& step : plan.mounts) {
    if (step.target == target && step.op == op) return &step;
  }
  return nullptr;
}
const CgroupDir* Find(const LaunchPlan& plan, const std::string& path) {
  for (const CgroupDir& dir : plan.cgroups) {
    if (dir.path == path) return &dir;
  }
  return nullptr;
}
std::string ValueOf(const CgroupDir* dir, const std::string& file) {
  if (dir == nullptr) return "no directory";
  for (const CgroupDir::Write& write : dir->writes) {
    if (write.file == file) return write.value;
  }
  return "not written";
}

TEST(PlanBuilderTest, RootedIdentity) {
  LaunchPlan plan = Build(FullHost(), Default());
  EXPECT_FALSE(plan.user_namespace_first);
  ASSERT_EQ(plan.uid_map.size(), 1u);
  EXPECT_EQ(plan.uid_map[0].inside, 0u);
  EXPECT_EQ(plan.uid_map[0].outside, 1'000'000u);
  EXPECT_EQ(plan.uid_map[0].count, 65536u);
  EXPECT_EQ(plan.gid_map[0].outside, 1'000'000u);
  EXPECT_EQ(plan.keep_capabilities, 0xe0u);  // kill, setgid, setuid
  EXPECT_EQ(plan.namespaces & CLONE_NEWUSER, 0u);
  for (uint64_t flag : {CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS}) {
    EXPECT_NE(plan.namespaces & flag, 0u);
  }
  EXPECT_EQ(plan.outer_filter, "filter--");
  CommandUser user = CommandUserOf(FullHost(), Paths());
  EXPECT_EQ(user.inside, 1000u);
  EXPECT_EQ(user.host_uid, 1'001'000u);
}

TEST(PlanBuilderTest, UidsThatCannotBeGivenAreRefused) {
  SandboxPaths paths = Paths();
  for (uint32_t base : {0u, 1000u, 4294930000u}) {
    paths.uid_base = base;
    EXPECT_EQ(Refusal(FullHost(), Default(), paths).code, ErrorCode::kHostUnsupported) << base;
  }
  HostFacts inner = FullHost();
  inner.own_ids = {{0, 65536}};  // a container with a user namespace of its own
  EXPECT_EQ(Refusal(inner, Default()).code, ErrorCode::kHostUnsupported);
}

TEST(PlanBuilderTest, IdsThatAreNoNamesAreRefused) {
  const std::string ids[] = {"", "a/b", "..", "a b", std::string(65, 'a')};
  for (const std::string& id : ids) {
    SandboxPaths paths = Paths();
    paths.id = id;
    EXPECT_EQ(Refusal(FullHost(), Default(), paths).code, ErrorCode::kInvalidArgument) << id;
  }
}

TEST(PlanBuilderTest, CgroupsOnV2) {
  SandboxSpec spec = Default();
  spec.resources.cpus = 1.5;
  spec.resources.memory_bytes = 100 << 20;
  spec.resources.disk_bytes = 10 << 20;
  spec.resources.pids = 9;
  LaunchPlan plan = Build(FullHost(), spec);
  std::string top = "/sys/fs/cgroup/caisson/caisson-sb_1";
  const CgroupDir* command = Find(plan, top + "/cmd");
  EXPECT_EQ(ValueOf(Find(plan, top), "cgroup.subtree_control"), "+memory +cpu +pids");
  EXPECT_EQ(ValueOf(command, "memory.max"), "104857600");
  EXPECT_EQ(ValueOf(command, "memory.swap.max"), "0");
  EXPECT_EQ(ValueOf(command, "cpu.max"), "150000 100000");
  EXPECT_EQ(ValueOf(command, "pids.max"), "10");  // and the spawner
  EXPECT_EQ(command->role, CgroupDir::Role::kCommand);
  EXPECT_TRUE(command->delegate);
  EXPECT_EQ(command->memory_events, "memory.events");
  const CgroupDir* guest = Find(plan, top + "/guest");
  EXPECT_EQ(ValueOf(guest, "memory.max"), std::to_string(74 << 20));  // with what it writes
  EXPECT_EQ(ValueOf(guest, "pids.max"), "64");
  // Parents before children; processes only in the leaves.
  EXPECT_EQ(plan.cgroups[0].path, top);
  EXPECT_EQ(plan.cgroups[0].role, CgroupDir::Role::kParent);
  EXPECT_EQ(plan.cgroups.size(), 3u);
}

TEST(PlanBuilderTest, CgroupsOnV1WithTheV2Tree) {
  HostFacts facts = FullHost();
  facts.cgroups.v2_memory = facts.cgroups.v2_cpu = facts.cgroups.v2_pids = false;
  facts.cgroups.v1_memory = "/cg/memory";
  facts.cgroups.v1_cpu = "/cg/cpu";
  facts.cgroups.v1_pids = "/cg/pids";
  LaunchPlan plan = Build(facts, Default());
  EXPECT_EQ(ValueOf(Find(plan, "/cg/memory/caisson-sb_1/cmd"), "memory.limit_in_bytes"),
            "536870912");
  EXPECT_EQ(Find(plan, "/cg/memory/caisson-sb_1/cmd")->memory_events, "memory.oom_control");
  // Above it the guest, with room of its own whatever the commands use.
  EXPECT_EQ(Find(plan, "/cg/memory/caisson-sb_1")->role, CgroupDir::Role::kGuest);
  EXPECT_EQ(ValueOf(Find(plan, "/cg/memory/caisson-sb_1"), "memory.limit_in_bytes"),
            std::to_string((64 << 20) + (1ULL << 30) + 536870912));
  EXPECT_EQ(ValueOf(Find(plan, "/cg/pids/caisson-sb_1"), "pids.max"), "321");
  EXPECT_EQ(ValueOf(Find(plan, "/cg/cpu/caisson-sb_1"), "cpu.cfs_quota_us"), "100000");
  EXPECT_EQ(ValueOf(Find(plan, "/cg/pids/caisson-sb_1/cmd"), "pids.max"), "257");
  EXPECT_TRUE(Find(plan, "/sys/fs/cgroup/caisson/caisson-sb_1/cmd")->delegate);
  EXPECT_EQ(std::ranges::count_if(plan.cgroups,
                                  [](const CgroupDir& d) { return !d.memory_events.empty(); }),
            1);
}

TEST(PlanBuilderTest, MinimalRoot) {
  LaunchPlan plan = Build(FullHost(), Default());
  const MountStep* usr = Find(plan, "usr", Op::kBind);
  ASSERT_NE(usr, nullptr);
  EXPECT_TRUE(usr->read_only && !usr->allow_devices);
  EXPECT_EQ(Find(plan, "bin", Op::kSymlink)->source, "usr/bin");
  EXPECT_TRUE(Find(plan, "lib64", Op::kBind)->read_only);
  EXPECT_TRUE(Find(plan, "etc/ssl/certs", Op::kBind)->read_only);
  EXPECT_EQ(Find(plan, "etc/localtime", Op::kSymlink)->source, "/usr/share/zoneinfo/UTC");
  EXPECT_THAT(Find(plan, "etc/passwd", Op::kFile)->content,
              HasSubstr("user:x:1000:1000:user:/home/user:"));
  EXPECT_EQ(Find(plan, "etc/resolv.conf", Op::kFile)->content, "");
  // Nothing else of the host: every absolute source is one of these.
  for (const MountStep& step : plan.mounts) {
    if (step.op != Op::kBind || step.source[0] != '/') continue;
    bool known = step.source == "/usr" || step.source == "/lib64" ||
                 step.source.starts_with("/dev/") || step.source == "/etc/ld.so.cache" ||
                 step.source == "/etc/ssl/certs";
    EXPECT_TRUE(known) << step.source;
    EXPECT_EQ(step.allow_devices, step.source.starts_with("/dev/")) << step.source;
  }
  // The root becomes read-only at the very end.
  EXPECT_EQ(plan.mounts.back().op, Op::kReadOnly);
  EXPECT_EQ(plan.mounts.back().target, "");
  EXPECT_TRUE(Find(plan, "proc/kcore", Op::kMask)->optional);
  EXPECT_NE(Find(plan, "proc/sys", Op::kReadOnly), nullptr);
}

TEST(PlanBuilderTest, WritablePathsShareOneTmpfs) {
  SandboxSpec spec = Default();
  spec.writable_paths = {"/data"};
  spec.resources.disk_bytes = 8 << 20;
  LaunchPlan plan = Build(FullHost(), spec);
  const MountStep* disk = nullptr;
  for (const MountStep& step : plan.mounts) {
    if (step.op == Op::kTmpfs && step.target != "dev") {
      EXPECT_EQ(disk, nullptr) << "a second tmpfs";
      disk = &step;
    }
  }
  ASSERT_NE(disk, nullptr);
  EXPECT_EQ(disk->size_bytes, 8u << 20);
  EXPECT_EQ(disk->inodes, 2048u);
  EXPECT_NE(Find(plan, disk->target, Op::kMask), nullptr);
  for (const char* path : {"workspace", "home/user", "data", "tmp", "var/tmp", "dev/shm"}) {
    const MountStep* bind = Find(plan, path, Op::kBind);
    ASSERT_NE(bind, nullptr) << path;
    EXPECT_TRUE(bind->source.starts_with(disk->target + "/")) << path;
    EXPECT_FALSE(bind->read_only);
    EXPECT_TRUE(std::ranges::any_of(plan.landlock_rules, [&](const launcher::LandlockRule& rule) {
      return rule.path == std::string("/") + path && (rule.access & 2) != 0;
    })) << path;
  }
  const MountStep* work = Find(plan, Find(plan, "workspace", Op::kBind)->source, Op::kDirectory);
  EXPECT_EQ(work->uid, 1'001'000u);
  EXPECT_EQ(work->mode, 0755u);
}

TEST(PlanBuilderTest, ReadOnlySetsAreOfTheGuest) {
  SandboxSpec spec = Default();
  spec.read_only_sets = {"/opt/skills"};
  LaunchPlan plan = Build(FullHost(), spec);
  const MountStep* store = Find(plan, SetStore(0), Op::kBind);
  ASSERT_NE(store, nullptr);
  const MountStep* directory = Find(plan, store->source, Op::kDirectory);
  ASSERT_NE(directory, nullptr);
  EXPECT_EQ(directory->uid, Paths().uid_base);
  EXPECT_EQ(directory->mode, 0755u);
  const MountStep* link = Find(plan, "opt/skills", Op::kSymlink);
  ASSERT_NE(link, nullptr);
  EXPECT_EQ(link->source, "/" + SetStore(0) + "/current");
}

TEST(PlanBuilderTest, WorkspaceDirectoryOfTheHost) {
  SandboxPaths paths = Paths();
  paths.workspace_dir = "/state/workspaces/1";
  Error error = Refusal(FullHost(), Default(), paths);
  EXPECT_EQ(error.code, ErrorCode::kLimitNotEnforced);
  EXPECT_THAT(error.message, Not(HasSubstr("default-rootless")));
  SandboxSpec spec = Default();
  spec.requirements.disk_limit = false;
  LaunchPlan plan = Build(FullHost(), spec, paths);
  EXPECT_EQ(Find(plan, "workspace", Op::kBind)->source, "/state/workspaces/1");
}

TEST(PlanBuilderTest, LandlockByVersion) {
  HostFacts facts = FullHost();
  SandboxSpec spec = Default();
  const std::pair<int, uint64_t> handled[] = {{1, 0x1fff}, {2, 0x3fff}, {3, 0x7fff},
                                              {4, 0x7fff}, {5, 0xffff}, {7, 0xffff}};
  for (auto [abi, access] : handled) {
    facts.landlock_abi = abi;
    LaunchPlan plan = Build(facts, spec);
    EXPECT_EQ(plan.landlock_fs, access) << abi;
    EXPECT_EQ(plan.landlock_scoped, abi >= 6 ? 3u : 0u);
    for (const launcher::LandlockRule& rule : plan.landlock_rules) {
      EXPECT_EQ(rule.access & ~access, 0u);
      if (rule.path == "/") EXPECT_EQ(rule.access, 0b1101u);  // execute, read file, read directory
    }
  }
}

TEST(PlanBuilderTest, LimitsOfProcesses) {
  HostFacts facts = FullHost();
  facts.max_open_files = 1000;
  LaunchPlan plan = Build(facts, Default());
  for (const launcher::ResourceLimit& limit : plan.limits) {
    EXPECT_NE(limit.resource, static_cast<uint32_t>(RLIMIT_NPROC));  // it counts per host uid
    if (limit.resource == RLIMIT_NOFILE) EXPECT_EQ(limit.hard, 1000u);
    if (limit.resource == RLIMIT_CORE) EXPECT_EQ(limit.hard, 1u);
  }
  EXPECT_EQ(plan.limits.size(), 2u);
}

TEST(PlanBuilderTest, RootlessPlan) {
  HostFacts facts = RootlessHost();
  LaunchPlan plan = Build(facts, BuiltInProfile("default-rootless").value());
  EXPECT_TRUE(plan.user_namespace_first);
  EXPECT_EQ(plan.uid_map[0].outside, 1234u);
  EXPECT_EQ(plan.uid_map[0].count, 1u);
  EXPECT_EQ(plan.gid_map[0].outside, 99u);
  EXPECT_EQ(plan.keep_capabilities, 0u);
  EXPECT_TRUE(plan.cgroups.empty());
  EXPECT_EQ(CommandUserOf(facts, Paths()).inside, 0u);
  for (const MountStep& step : plan.mounts)
    EXPECT_TRUE(step.uid == 0 || step.uid == 1234) << step.target;
}

TEST(PlanBuilderTest, RefusalsNameWhatLacksAndTheOtherProfile) {
  Error error = Refusal(RootlessHost(), Default());
  EXPECT_EQ(error.code, ErrorCode::kHostUnsupported);
  EXPECT_THAT(error.message, HasSubstr("does not run as root"));
  EXPECT_THAT(error.message, HasSubstr("default-rootless"));

  HostFacts no_memory = FullHost();
  no_memory.cgroups.memory = {false, "no memory controller"};
  error = Refusal(no_memory, Default());
  EXPECT_EQ(error.code, ErrorCode::kLimitNotEnforced);
  EXPECT_THAT(error.message, HasSubstr("no memory controller"));
  EXPECT_THAT(error.message, HasSubstr("default-rootless"));

  HostFacts no_landlock = FullHost();
  no_landlock.landlock = {false, "the kernel has no Landlock"};
  error = Refusal(no_landlock, Default());
  EXPECT_EQ(error.code, ErrorCode::kHostUnsupported);
  EXPECT_THAT(error.message, HasSubstr("no Landlock"));
  EXPECT_THAT(error.message, Not(HasSubstr("default-rootless")));  // it requires Landlock too

  HostFacts no_namespaces = RootlessHost();
  no_namespaces.namespaces = {false, "user.max_user_namespaces is 0"};
  error = Refusal(no_namespaces, BuiltInProfile("default-rootless").value());
  EXPECT_THAT(error.message, HasSubstr("max_user_namespaces"));

  SandboxSpec vm = Default();
  vm.requirements.min_isolation = Isolation::kMicroVm;
  EXPECT_EQ(Refusal(FullHost(), vm).code, ErrorCode::kIsolationNotPermitted);
  for (NetworkMode mode :
       {NetworkMode::kAllowList, NetworkMode::kNamed, NetworkMode::kUnrestricted}) {
    SandboxSpec open = Default();
    open.network = mode;
    EXPECT_EQ(Refusal(FullHost(), open).code, ErrorCode::kEgressNotEnforced);
  }
}

TEST(PlanBuilderTest, PlanFitsAndIsDeterministic) {
  std::string bytes = launcher::EncodePlan(Build(FullHost(), Default()));
  EXPECT_EQ(bytes, launcher::EncodePlan(Build(FullHost(), Default())));
  EXPECT_TRUE(launcher::DecodePlan(bytes).has_value());
}

class RootfsTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/caisson-rootfs-XXXXXX";
    root_ = mkdtemp(pattern);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(RootfsTest, BindsEntriesAndMirrorsWaysToOwnPaths) {
  fs::create_directories(root_ + "/bin");
  fs::create_directories(root_ + "/home/someone");
  fs::create_directories(root_ + "/tmp/x");
  fs::create_symlink("bin", root_ + "/sbin");
  std::ofstream(root_ + "/file") << "x";
  std::vector<MountStep> steps = MirrorRootfs(root_, {"home/user", "tmp", "work"}).value();
  LaunchPlan plan;
  plan.mounts = steps;
  EXPECT_EQ(steps.size(), 5u);
  EXPECT_TRUE(Find(plan, "bin", Op::kBind)->read_only);
  EXPECT_NE(Find(plan, "home", Op::kDirectory), nullptr);
  EXPECT_EQ(Find(plan, "home/someone", Op::kBind)->source, root_ + "/home/someone");
  EXPECT_EQ(Find(plan, "sbin", Op::kSymlink)->source, "bin");
  EXPECT_NE(Find(plan, "file", Op::kBind), nullptr);
}

TEST_F(RootfsTest, LinkOnTheWayToAnOwnPathIsRefused) {
  fs::create_symlink("/etc", root_ + "/home");
  EXPECT_EQ(MirrorRootfs(root_, {"home/user"}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(MirrorRootfs(root_ + "/none", {}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(MirrorRootfs(root_ + "/home", {}).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RootfsTest, FilesOfAnImageAreNotReadThroughLinks) {
  fs::create_directories(root_ + "/etc");
  std::ofstream(root_ + "/etc/group") << "here";
  fs::create_symlink("/etc/passwd", root_ + "/etc/passwd");
  fs::create_symlink("/etc", root_ + "/other");
  EXPECT_EQ(ReadRootfsFile(root_, "etc/group"), "here");
  EXPECT_EQ(ReadRootfsFile(root_, "etc/passwd"), "");
  EXPECT_EQ(ReadRootfsFile(root_, "other/passwd"), "");
  EXPECT_EQ(ReadRootfsFile(root_, "none"), "");
}

}  // namespace
}  // namespace caisson::sandbox::local
