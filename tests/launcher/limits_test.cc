// Limits bite, and the sandbox and its neighbours survive that. Checks 49, 50, 51, 55, 56.
#include <unistd.h>

#include "base/syscall.h"
#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(LauncherTest, ForkBombStopsAtTheLimit) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.pids = 32;
  Box box = Start(client, spec);
  Box neighbour = Start(client);
  Output output = box.Sh("for i in $(seq 60); do sleep 5 & done 2>&1; wait");
  EXPECT_THAT(output.text, HasSubstr("fork"));
  EXPECT_EQ(neighbour.Sh("echo fine").text, "fine\n");
  EXPECT_EQ(box.Sh("echo recovered").text, "recovered\n");
  EXPECT_TRUE(Terminate(client, box).ok());
  EXPECT_TRUE(Terminate(client, neighbour).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, RunawayForksEndWithTheSandbox) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.pids = 64;
  Box box = Start(client, spec);
  // Runs on when its command has ended, ignores signals, in sessions of its own.
  box.Sh(
      "printf 'trap \"\" TERM HUP INT\\nwhile :; do setsid sh /tmp/b & done\\n' > /tmp/b; "
      "setsid sh /tmp/b >/dev/null 2>&1 & sleep 0.2");
  Answer answer = Terminate(client, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, FrozenSandboxEnds) {  // 57
  Client client(state_dir_, "--ephemeral");
  Box box = Start(client);
  EXPECT_EQ(box.Sh("setsid sleep 1000 >/dev/null 2>&1 & echo started").text, "started\n");
  for (const CgroupDir& dir : box.plan.cgroups) {
    if (dir.delegate) EXPECT_TRUE(WriteControlFile(dir.path + "/cgroup.freeze", "1").has_value());
  }
  Answer answer = Terminate(client, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, SandboxFrozenByTheV1FreezerEnds) {
  std::string freezer = "/sys/fs/cgroup/freezer";
  if (access((freezer + "/cgroup.procs").c_str(), W_OK) != 0) GTEST_SKIP() << "no v1 freezer";
  facts_.cgroups.v1_freezer = freezer;
  before_ = Census();
  Client client(state_dir_, "--ephemeral");
  Box box = Start(client);
  EXPECT_EQ(box.Sh("setsid sleep 1000 >/dev/null 2>&1 & echo started").text, "started\n");
  std::string commands = freezer + "/caisson-" + box.id;
  ASSERT_TRUE(WriteControlFile(commands + "/freezer.state", "FROZEN").has_value());
  Answer answer = Terminate(client, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, MemoryLimitKillsInsideOnly) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.memory_bytes = 64 << 20;
  Box box = Start(client, spec);
  EXPECT_EQ(box.Sh("/usr/bin/python3 -c 'a=bytearray(40<<20); print(len(a)>>20)'").text, "40\n");
  EXPECT_EQ(box.Sh("/usr/bin/python3 -c 'a=bytearray(400<<20)'; echo $?")
                    .text.substr(0, 20)
                    .find("137") != std::string::npos,
            true);
  EXPECT_EQ(box.Sh("echo alive").text, "alive\n");
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, DiskLimitIsTheSumOfAllWritablePaths) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.disk_bytes = 16 << 20;
  spec.writable_paths = {"/large_tool_results", "/data/deep/er"};
  Box box = Start(client, spec);
  for (const char* path : {"/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm",
                           "/large_tool_results", "/data/deep/er"}) {
    std::string file = std::string(path) + "/f";
    EXPECT_THAT(box.Sh("head -c 20000000 /dev/zero > " + file).text, HasSubstr("No space left"))
        << path;
    EXPECT_EQ(box.Sh("rm " + file).code, 0);
  }
  EXPECT_EQ(
      box.Sh("head -c 10000000 /dev/zero > /tmp/a && head -c 5000000 /dev/zero > /workspace/b")
          .code,
      0);
  EXPECT_THAT(box.Sh("head -c 5000000 /dev/zero > /home/user/c").text, HasSubstr("No space left"));
  box.Sh("rm -f /tmp/a /workspace/b /home/user/c");
  // Inodes.
  EXPECT_THAT(
      box.Sh("/usr/bin/python3 -c 'for i in range(5000): open(\"/tmp/%d\"%i,\"w\")' 2>&1 | tail -1")
          .text,
      HasSubstr("No space left"));
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, DescriptorsAndCoresAreLimited) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.open_files = 100;
  Box box = Start(client, spec);
  EXPECT_EQ(box.Sh("ulimit -n; ulimit -Hn; ulimit -c; ulimit -Hc").text, "100\n100\n0\n0\n");
  EXPECT_NE(box.Sh("ulimit -n 200").code, 0);
  EXPECT_TRUE(Terminate(client, box).ok());
}

TEST_F(LauncherTest, CpuIsLimited) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.cpus = 0.2;
  Box box = Start(client, spec);
  // Half a second of cpu time takes at least two seconds of the clock.
  EXPECT_EQ(box.Sh(""
                   "printf 'import time\\nw=time.time()\\nwhile time.process_time()<0.5: pass\\n"
                   "print(time.time()-w>1.5)\\n' > /tmp/c.py; /usr/bin/python3 /tmp/c.py")
                .text,
            "True\n");
  EXPECT_TRUE(Terminate(client, box).ok());
}

}  // namespace
}  // namespace caisson::launcher::testing
