// Without root: one uid, no cgroups where none are delegated. Run by ctest as an unprivileged user.
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RootlessTest : public LauncherTest {
 protected:
  void SetUp() override {
    if (geteuid() == 0) GTEST_SKIP() << "run as an unprivileged user";
    SetUpAnyUser();
    if (!facts_.namespaces.available) GTEST_SKIP() << facts_.namespaces.reason;
  }
};

TEST_F(RootlessTest, CreateRunTerminate) {
  EXPECT_FALSE(facts_.root);
  Client client(state_dir_, "--ephemeral");
  Box box = Start(client, sandbox::BuiltInProfile("default-rootless").value(), "one uid");
  EXPECT_EQ(box.Sh("id -u; echo hi > /workspace/a && cat /workspace/a; pwd").text,
            "0\nhi\n/workspace\n");
  EXPECT_EQ(box.Sh("grep -E 'Cap(Eff|Bnd)' /proc/self/status").text,
            "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n");
  EXPECT_EQ(box.Sh("cat /proc/self/uid_map | tr -s ' '").text,
            " 0 " + std::to_string(geteuid()) + " 1\n");
  EXPECT_NE(box.Sh("touch /x /usr/x /etc/x /dev/x").code, 0);
  EXPECT_NE(box.Sh("mount -t tmpfs x /tmp").code, 0);
  EXPECT_NE(box.Sh("unshare -Ur true").code, 0);
  EXPECT_THAT(box.Sh("cat /proc/self/mountinfo").text, Not(HasSubstr("/sys/fs/cgroup")));
  EXPECT_THAT(box.Sh("head -c 2000000000 /dev/zero > /tmp/f").text, HasSubstr("No space left"));
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(RootlessTest, DefaultProfileIsRefusedWithTheOther) {
  sandbox::local::SandboxPaths paths;
  paths.id = "a";
  paths.stage_dir = state_dir_;
  Result<LaunchPlan> plan = sandbox::local::BuildLaunchPlan(facts_, Spec(), paths, outer_filter_);
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kHostUnsupported);
  EXPECT_THAT(plan.error().message, HasSubstr("default-rootless"));
}

}  // namespace
}  // namespace caisson::launcher::testing
