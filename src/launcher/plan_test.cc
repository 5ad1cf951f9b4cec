#include "launcher/plan.h"

#include <gtest/gtest.h>

#include <random>

namespace caisson::launcher {
namespace {

// Every field set to something that is not its default.
LaunchPlan FullPlan() {
  LaunchPlan plan;
  plan.name = "sb_1";
  plan.hostname = "box";
  plan.stage_dir = "/state/stage";
  plan.namespaces = 0x2c020000;
  plan.user_namespace_first = true;
  plan.uid_map = {{0, 100000, 1000}, {1000, 1000, 1}};
  plan.gid_map = {{0, 200000, 65536}};
  plan.guest_uid = 7;
  plan.guest_gid = 8;
  plan.die_with_launcher = true;
  CgroupDir dir;
  dir.path = "/sys/fs/cgroup/x";
  dir.role = CgroupDir::Role::kCommand;
  dir.writes = {{"memory.max", "1", true}, {"memory.swap.max", "0", false}};
  dir.delegate = true;
  dir.memory_events = "memory.events";
  plan.cgroups = {CgroupDir{}, dir};
  plan.root_dir = "/images/a";
  plan.root_tmpfs_bytes = 5;
  MountStep step;
  step.op = MountStep::Op::kFile;
  step.target = "etc/hosts";
  step.source = "/a";
  step.content = std::string("a\0b", 3);
  step.size_bytes = 1;
  step.inodes = 2;
  step.mode = 0644;
  step.uid = 3;
  step.gid = 4;
  step.read_only = step.no_exec = step.allow_devices = step.recursive = step.optional = true;
  plan.mounts = {step, MountStep{}};
  plan.limits = {{7, 64, 128}};
  plan.keep_capabilities = 0xc0;
  plan.landlock_fs = 1;
  plan.landlock_net = 2;
  plan.landlock_scoped = 3;
  plan.landlock_rules = {{"/usr", 5}};
  plan.outer_filter = std::string(16, '\x06');
  plan.environment = {"PATH=/bin"};
  return plan;
}

TEST(PlanTest, DecodedPlanEncodesToTheSameBytes) {
  std::string bytes = EncodePlan(FullPlan());
  Result<LaunchPlan> plan = DecodePlan(bytes);
  ASSERT_TRUE(plan.has_value()) << plan.error().ToString();
  EXPECT_EQ(EncodePlan(*plan), bytes);
  EXPECT_EQ(plan->name, "sb_1");
  EXPECT_EQ(plan->uid_map[1].inside, 1000u);
  EXPECT_EQ(plan->cgroups[1].writes[1].file, "memory.swap.max");
  EXPECT_FALSE(plan->cgroups[1].writes[1].required);
  EXPECT_EQ(plan->mounts[0].op, MountStep::Op::kFile);
  EXPECT_EQ(plan->mounts[0].content, std::string("a\0b", 3));
  EXPECT_TRUE(plan->mounts[0].optional);
  EXPECT_EQ(plan->landlock_rules[0].access, 5u);
  EXPECT_EQ(plan->environment, std::vector<std::string>{"PATH=/bin"});
}

TEST(PlanTest, EveryTruncationIsRefused) {
  std::string bytes = EncodePlan(FullPlan());
  for (size_t size = 0; size < bytes.size(); size++) {
    Result<LaunchPlan> plan = DecodePlan(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(plan.has_value()) << size;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(PlanTest, TrailingBytesAnotherVersionAndOtherTextAreRefused) {
  std::string bytes = EncodePlan(FullPlan());
  EXPECT_FALSE(DecodePlan(bytes + "x").has_value());
  std::string newer = bytes;
  newer[4] = static_cast<char>(kPlanVersion + 1);
  Result<LaunchPlan> plan = DecodePlan(newer);
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("version"), std::string::npos);
  EXPECT_FALSE(DecodePlan("GET / HTTP/1.1\r\n\r\n").has_value());
  EXPECT_FALSE(DecodePlan(std::string(kMaxPlanBytes + 1, 'C')).has_value());
}

TEST(PlanTest, NulInAPathIsRefused) {
  LaunchPlan plan = FullPlan();
  plan.mounts[0].source = std::string("/a\0/b", 5);
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).has_value());
}

TEST(PlanTest, CountsOverTheBoundAreRefused) {
  LaunchPlan plan = FullPlan();
  plan.environment.assign(5000, "A=1");
  EXPECT_FALSE(DecodePlan(EncodePlan(plan)).has_value());
}

TEST(PlanTest, DamagedBytesNeverCrash) {
  std::string bytes = EncodePlan(FullPlan());
  std::mt19937 random(1);
  size_t accepted = 0;
  for (int round = 0; round < 20000; round++) {
    std::string damaged = bytes;
    for (int i = 0; i < 1 + round % 4; i++) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    Result<LaunchPlan> plan = DecodePlan(damaged);
    if (plan) {
      accepted++;
      // What is accepted is in the canonical form.
      EXPECT_EQ(EncodePlan(*plan), damaged);
    }
  }
  EXPECT_GT(accepted, 0u);
}

}  // namespace
}  // namespace caisson::launcher
