#include "sandbox/backends/local/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace caisson::sandbox::local {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// A host made of texts: files with their content; everything below `writable` may be written.
struct FakeHost {
  std::string mountinfo;
  std::string self_cgroup;
  std::map<std::string, std::string> files;
  std::set<std::string> writable;
  std::set<std::string> delegated;
  bool root = true;

  CgroupFacts Choose() const {
    CgroupView view;
    view.read = [this](const std::string& path) {
      auto found = files.find(path);
      return found == files.end() ? std::string() : found->second;
    };
    view.writable = [this](const std::string& path) {
      for (const std::string& prefix : writable) {
        if (path == prefix || path.starts_with(prefix + "/")) return true;
      }
      return false;
    };
    view.delegated = [this](const std::string& path) { return delegated.contains(path); };
    return ChooseCgroups(mountinfo, self_cgroup, view, root);
  }
};

const char* const kHybrid =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n"
    "39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:3 master:1 - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

const char* const kUnified =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 "
    "rw,nsdelegate,memory_recursiveprot\n";

FakeHost Unified(const std::string& own) {
  FakeHost host;
  host.mountinfo = kUnified;
  host.self_cgroup = "0::" + own + "\n";
  std::string dir = "/sys/fs/cgroup" + (own == "/" ? "" : own);
  host.files["/sys/fs/cgroup/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids\n";
  host.files[dir + "/cgroup.controllers"] = "cpu memory pids\n";
  host.files[dir + "/cgroup.procs"] = "10\n11\n";
  host.writable = {"/sys/fs/cgroup"};
  return host;
}

TEST(ChooseCgroupsTest, HybridTakesLimitsFromV1AndTheTreeFromV2) {
  FakeHost host;
  host.mountinfo = kHybrid;
  host.self_cgroup = "8:pids:/\n4:memory:/box/a\n1:cpu:/\n6:freezer:/\n0::/\n";
  host.writable = {"/sys/fs/cgroup"};
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v1_memory, "/sys/fs/cgroup/memory/box/a");
  EXPECT_EQ(facts.v1_cpu, "/sys/fs/cgroup/cpu");
  EXPECT_EQ(facts.v1_pids, "/sys/fs/cgroup/pids");
  EXPECT_EQ(facts.v2_parent, "/sys/fs/cgroup/unified");
  EXPECT_FALSE(facts.v2_memory || facts.v2_cpu || facts.v2_pids);
  EXPECT_EQ(facts.v1_freezer, "");  // the v2 tree freezes
  EXPECT_TRUE(facts.memory.available && facts.cpu.available && facts.pids.available &&
              facts.tree.available);
  EXPECT_THAT(facts.preparation.writes, IsEmpty());
}

TEST(ChooseCgroupsTest, V1FallsBackToTheRootOfTheMount) {
  FakeHost host;
  host.mountinfo = kHybrid;
  host.self_cgroup = "4:memory:/gone\n";
  host.writable = {"/sys/fs/cgroup/pids"};
  CgroupFacts facts = host.Choose();
  EXPECT_FALSE(facts.memory.available);
  EXPECT_THAT(facts.memory.reason, HasSubstr("/sys/fs/cgroup/memory"));
  EXPECT_EQ(facts.v1_pids, "/sys/fs/cgroup/pids");
  EXPECT_FALSE(facts.tree.available);
}

TEST(ChooseCgroupsTest, PureV1HasTheFreezer) {
  FakeHost host;
  std::string hybrid = kHybrid;
  host.mountinfo = hybrid.substr(0, hybrid.find("41 31"));
  host.self_cgroup = "6:freezer:/a\n";
  host.writable = {"/sys/fs/cgroup"};
  CgroupFacts facts = host.Choose();
  EXPECT_FALSE(facts.tree.available);
  EXPECT_THAT(facts.tree.reason, HasSubstr("v2"));
  EXPECT_EQ(facts.v1_freezer, "/sys/fs/cgroup/freezer/a");
  EXPECT_EQ(facts.v2_parent, "");
}

TEST(ChooseCgroupsTest, ControllersThatAreMountedTogether) {
  FakeHost host;
  host.mountinfo = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
  host.self_cgroup = "5:cpu,cpuacct:/user.slice\n";
  host.writable = {"/sys/fs/cgroup"};
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v1_cpu, "/sys/fs/cgroup/cpu,cpuacct/user.slice");
  EXPECT_FALSE(facts.memory.available);
}

TEST(ChooseCgroupsTest, OwnPartOfAHierarchyInAContainer) {
  FakeHost host;
  host.mountinfo = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  host.self_cgroup = "4:memory:/docker/abc/sub\n";
  host.writable = {"/sys/fs/cgroup"};
  EXPECT_EQ(host.Choose().v1_memory, "/sys/fs/cgroup/memory/sub");
  host.self_cgroup = "4:memory:/docker/abcdef\n";  // another one with a longer name
  EXPECT_EQ(host.Choose().v1_memory, "/sys/fs/cgroup/memory");
  host.self_cgroup = "4:memory:/../other\n";  // outside of the cgroup namespace
  EXPECT_EQ(host.Choose().v1_memory, "/sys/fs/cgroup/memory");
}

TEST(ChooseCgroupsTest, DelegatedServiceMovesItsProcessesToALeaf) {
  FakeHost host = Unified("/system.slice/caisson.service");
  std::string own = "/sys/fs/cgroup/system.slice/caisson.service";
  host.delegated = {own};
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v2_parent, own);
  EXPECT_TRUE(facts.v2_memory && facts.v2_cpu && facts.v2_pids);
  EXPECT_TRUE(facts.memory.available && facts.tree.available);
  EXPECT_EQ(facts.v1_memory, "");
  EXPECT_THAT(facts.preparation.make, ElementsAre(own + "/caisson-server"));
  EXPECT_EQ(facts.preparation.move_from, own);
  EXPECT_EQ(facts.preparation.move_to, own + "/caisson-server");
  EXPECT_THAT(facts.preparation.writes,
              ElementsAre(Pair(own + "/cgroup.subtree_control", "+memory +cpu +pids")));
}

TEST(ChooseCgroupsTest, InTheLeafAlreadyUsesTheDirectoryAbove) {
  FakeHost host = Unified("/system.slice/caisson.service/caisson-server");
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v2_parent, "/sys/fs/cgroup/system.slice/caisson.service");
  EXPECT_EQ(facts.preparation.move_to, "");
}

TEST(ChooseCgroupsTest, RootInASharedSessionUsesADirectoryAtTheRoot) {
  FakeHost host = Unified("/user.slice/session-1.scope");
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v2_parent, "/sys/fs/cgroup/caisson");
  EXPECT_THAT(facts.preparation.make, ElementsAre("/sys/fs/cgroup/caisson"));
  EXPECT_EQ(facts.preparation.move_to, "");  // the real root may hold processes
  EXPECT_THAT(
      facts.preparation.writes,
      ElementsAre(Pair("/sys/fs/cgroup/cgroup.subtree_control", "+memory +cpu +pids"),
                  Pair("/sys/fs/cgroup/caisson/cgroup.subtree_control", "+memory +cpu +pids")));
}

TEST(ChooseCgroupsTest, RootAloneInItsCgroupUsesIt) {
  FakeHost host = Unified("/system.slice/caisson.service");
  host.files["/sys/fs/cgroup/system.slice/caisson.service/cgroup.procs"] = "10\n";
  EXPECT_EQ(host.Choose().v2_parent, "/sys/fs/cgroup/system.slice/caisson.service");
}

TEST(ChooseCgroupsTest, RootOfAContainersPartIsEmptiedFirst) {
  FakeHost host = Unified("/");
  host.files["/sys/fs/cgroup/cgroup.type"] = "domain\n";
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v2_parent, "/sys/fs/cgroup/caisson");
  EXPECT_EQ(facts.preparation.move_from, "/sys/fs/cgroup");
  EXPECT_EQ(facts.preparation.move_to, "/sys/fs/cgroup/caisson-server");
  host.files["/sys/fs/cgroup/cgroup.subtree_control"] = "cpu memory pids\n";
  EXPECT_EQ(host.Choose().preparation.move_to, "");  // done already
}

TEST(ChooseCgroupsTest, UserWithDelegationAndWithout) {
  FakeHost host = Unified("/user.slice/user-1000.slice/user@1000.service/caisson.scope");
  host.root = false;
  host.writable = {"/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"};
  CgroupFacts facts = host.Choose();
  EXPECT_EQ(facts.v2_parent,
            "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/caisson.scope");
  host.writable.clear();
  facts = host.Choose();
  EXPECT_EQ(facts.v2_parent, "");
  EXPECT_FALSE(facts.memory.available || facts.tree.available);
  EXPECT_THAT(facts.memory.reason, HasSubstr("not delegated"));
}

TEST(ChooseCgroupsTest, NothingMountedAndDamagedTexts) {
  FakeHost host;
  CgroupFacts facts = host.Choose();
  EXPECT_FALSE(facts.memory.available || facts.cpu.available || facts.pids.available);
  EXPECT_FALSE(facts.memory.reason.empty() || facts.tree.reason.empty());
  host.mountinfo = "x\n- cgroup2\n1 2 3 4 5 - cgroup\n \n1 2 0:1 / /a\\04 rw - cgroup2 c rw\n";
  host.self_cgroup = "::\n:\nx";
  host.Choose();
}

TEST(ChooseCgroupsTest, EscapedMountPoint) {
  FakeHost host;
  host.mountinfo = "41 31 0:38 / /mnt/my\\040cgroups rw - cgroup2 cgroup2 rw\n";
  host.self_cgroup = "0::/\n";
  host.writable = {"/mnt/my cgroups"};
  EXPECT_EQ(host.Choose().v2_parent, "/mnt/my cgroups");
}

TEST(ProbeHostTest, EveryLackHasAReason) {
  const char* programs = std::getenv("CAISSON_BIN_DIR");
  HostFacts facts =
      ProbeHost(std::string(programs == nullptr ? "" : programs) + "/caisson-launcher");
  EXPECT_EQ(facts.root, facts.root_reason.empty());
  for (const Ability& ability :
       {facts.namespaces, facts.seccomp, facts.landlock, facts.cgroups.memory, facts.cgroups.cpu,
        facts.cgroups.pids, facts.cgroups.tree}) {
    EXPECT_EQ(ability.available, ability.reason.empty()) << ability.reason;
  }
  EXPECT_FALSE(facts.own_ids.empty());
  EXPECT_GT(facts.max_open_files, 0u);
  EXPECT_NE(ProbeHost("/nonexistent").namespaces.reason.find("caisson-launcher cannot be run"),
            std::string::npos);
}

TEST(IsolationOfTest, EachWallCounts) {
  HostFacts facts;
  EXPECT_EQ(IsolationOf(facts), Isolation::kNone);
  facts.namespaces.available = true;
  EXPECT_EQ(IsolationOf(facts), Isolation::kContainer);
  facts.root = facts.seccomp.available = facts.landlock.available = true;
  EXPECT_EQ(IsolationOf(facts), Isolation::kHardenedContainer);
  facts.landlock.available = false;
  EXPECT_EQ(IsolationOf(facts), Isolation::kContainer);
}

}  // namespace
}  // namespace caisson::sandbox::local
