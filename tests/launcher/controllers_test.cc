// The v2 tree with a controller in it. Memory, cpu and pids sit in v1 on many test machines;
// hugetlb is distributed by the same rules and stands in for them. It is switched on at the root of
// the tree for the time of the test, so only on request: CAISSON_TEST_V2_CONTROLLERS=1.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/syscall.h"
#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(LauncherTest, V2ControllersAndNoProcessAboveALeaf) {
  if (getenv("CAISSON_TEST_V2_CONTROLLERS") == nullptr) GTEST_SKIP() << "not asked for";
  std::string top = facts_.cgroups.v2_parent;
  std::string available = ReadWholeFile(top + "/cgroup.controllers").value_or("");
  if (available.find("hugetlb") == available.npos) GTEST_SKIP() << "no hugetlb in the v2 tree";
  std::string service = top + "/caisson-test-" + std::to_string(getpid());
  ASSERT_EQ(mkdir(service.c_str(), 0755), 0);
  pid_t server = fork();  // a process in the directory that is to distribute
  if (server == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE(WriteControlFile(service + "/cgroup.procs", std::to_string(server)).has_value());

  sandbox::local::CgroupPreparation preparation;
  preparation.make = {service + "/caisson-server"};
  preparation.move_from = service;
  preparation.move_to = service + "/caisson-server";
  preparation.writes = {{top + "/cgroup.subtree_control", "+hugetlb"},
                        {service + "/cgroup.subtree_control", "+hugetlb"}};
  for (int round = 0; round < 2; round++) {
    Result<void> prepared = sandbox::local::PrepareCgroups(preparation);
    EXPECT_TRUE(prepared.has_value()) << prepared.error().ToString();
  }
  EXPECT_EQ(ReadWholeFile(service + "/cgroup.procs").value(), "");
  EXPECT_THAT(ReadWholeFile(service + "/caisson-server/cgroup.procs").value(),
              HasSubstr(std::to_string(server)));

  facts_.cgroups.v2_parent = service;
  facts_.cgroups.v2_memory = true;  // gives the plan its form for controllers
  Client client(state_dir_, "--keep");
  Box box = Prepare(Spec());
  for (CgroupDir& dir : box.plan.cgroups) {
    if (!dir.path.starts_with(service)) continue;
    dir.memory_events.clear();
    std::erase_if(dir.writes,
                  [](const CgroupDir::Write& w) { return w.file.starts_with("memory."); });
    for (CgroupDir::Write& write : dir.writes) {
      if (write.file == "cgroup.subtree_control") write.value = "+hugetlb";
    }
    if (dir.role == CgroupDir::Role::kCommand) dir.writes.push_back({"hugetlb.2MB.max", "0"});
  }
  Answer answer = Create(client, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_EQ(box.Sh("echo works").text, "works\n");  // in a directory of its own below cmd
  std::string cmd = service + "/caisson-" + box.id + "/cmd";
  EXPECT_THAT(ReadWholeFile(service + "/caisson-" + box.id + "/guest/cgroup.procs").value(),
              HasSubstr(std::to_string(box.pid)));
  EXPECT_NE(ReadWholeFile(cmd + "/cgroup.procs").value(), "");  // the spawner
  EXPECT_EQ(ReadWholeFile(cmd + "/hugetlb.2MB.max").value(), "0\n");
  // The delegated directory lets the guest make no more of it than it should.
  struct stat info{};
  ASSERT_EQ(stat(cmd.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, box.plan.uid_map[0].outside);
  ASSERT_EQ(stat((cmd + "/hugetlb.2MB.max").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0u);
  EXPECT_TRUE(Terminate(client, box).ok());

  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  EXPECT_EQ(rmdir((service + "/caisson-server").c_str()), 0);
  EXPECT_EQ(rmdir(service.c_str()), 0);
  EXPECT_TRUE(WriteControlFile(top + "/cgroup.subtree_control", "-hugetlb").has_value());
}

}  // namespace
}  // namespace caisson::launcher::testing
