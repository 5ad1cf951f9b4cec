// Creation and end: what the replies say, and that nothing is left behind whatever goes wrong.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <vector>

#include "base/syscall.h"
#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

using ::testing::HasSubstr;

bool Ended(const UniqueFd& pidfd, int timeout_ms = 5000) {
  pollfd state{pidfd.get(), POLLIN, 0};
  return poll(&state, 1, timeout_ms) == 1;
}
bool Ended(const Box& box, int timeout_ms = 5000) { return Ended(box.pidfd, timeout_ms); }

std::vector<int> ChildrenNamed(int parent, const std::string& name) {
  std::string pids = std::to_string(parent);
  std::istringstream children(
      ReadWholeFile("/proc/" + pids + "/task/" + pids + "/children").value());
  std::vector<int> found;
  for (int pid = 0; children >> pid;) {
    if (ReadWholeFile("/proc/" + std::to_string(pid) + "/comm").value_or("") == name + "\n") {
      found.push_back(pid);
    }
  }
  return found;
}

TEST_F(LauncherTest, HelloTellsTheVersion) {
  Client client(state_dir_, "--keep");
  Request request;
  request.op = Op::kHello;
  Answer answer = client.Call(request);
  EXPECT_TRUE(answer.ok());
  EXPECT_EQ(answer.reply.value, kProtocolVersion);
  request.op = static_cast<Op>(77);
  EXPECT_EQ(client.Call(request).reply.error_number, ENOSYS);
}

TEST_F(LauncherTest, CreateRunTerminateLeavesNothing) {
  Client client(state_dir_, "--keep");
  Box box = Start(client);
  Output output = box.Sh("echo hello; id -u; pwd; exit 7");
  EXPECT_EQ(output.code, 7);
  EXPECT_EQ(output.text, "hello\n1000\n/workspace\n");
  for (LaunchStep step : {LaunchStep::kDecodePlan, LaunchStep::kMounts, LaunchStep::kSeccomp,
                          LaunchStep::kGuestReady}) {
    EXPECT_GT(box.reply.step_us[static_cast<size_t>(step)], 0u) << NameOf(step);
  }
  // A process that outlives its command ends with the sandbox.
  EXPECT_EQ(box.Sh("setsid sleep 1000 >/dev/null 2>&1 & echo started").text, "started\n");
  Answer answer = Terminate(client, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_TRUE(Ended(box, 0));
  ExpectCensusAsBefore();
  // Asked again, and for a process that never was.
  EXPECT_TRUE(Terminate(client, box).ok());
  box.start_time += 1;
  EXPECT_TRUE(Terminate(client, box).ok());
}

// The first makes its network namespace itself; later ones may get one that was made ahead. In each
// are only an empty loopback that works and a namespace nobody else has, dead sandboxes included.
TEST_F(LauncherTest, EverySandboxHasANetworkOfItsOwn) {
  Client client(state_dir_, "--keep");
  std::set<std::string> seen;
  std::vector<Box> alive;
  for (int i = 0; i < 6; i++) {
    Box box = Start(client);
    std::string link = "/proc/" + std::to_string(box.pid) + "/ns/net";
    EXPECT_TRUE(seen.insert(std::filesystem::read_symlink(link)).second) << i;
    EXPECT_EQ(box.Sh("tail -n +3 /proc/net/dev | tr -s ' ' | cut -d' ' -f2,3").text, "lo: 0\n")
        << i;
    EXPECT_EQ(box.Sh("python3 -c \"import socket as s; l = s.create_server(('127.0.0.1', 8080)); "
                     "s.create_connection(('127.0.0.1', 8080)); print('up')\"")
                  .text,
              "up\n");
    if (i % 2 == 0) {
      EXPECT_TRUE(Terminate(client, box).ok());
    } else {
      alive.push_back(std::move(box));
    }
  }
  EXPECT_FALSE(seen.contains(std::filesystem::read_symlink("/proc/self/ns/net")));
  for (Box& box : alive) EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

// The process that makes network namespaces ahead is a help, not a condition: without it sandboxes
// start as before, and it never outlives its launcher, however that ends.
TEST_F(LauncherTest, TheMakerOfNetworksMayDieAndNeverStays) {
  for (bool killed : {false, true}) {
    Client client(state_dir_, "--keep");
    std::vector<Box> boxes;
    for (int i = 0; i < 3; i++) boxes.push_back(Start(client));
    std::vector<int> makers = ChildrenNamed(client.pid(), "caisson-network");
    ASSERT_EQ(makers.size(), 1u);
    UniqueFd maker(static_cast<int>(syscall(SYS_pidfd_open, makers[0], 0)));
    if (killed) {
      kill(makers[0], SIGKILL);
      // More than may have been made before.
      for (int i = 0; i < 6; i++) boxes.push_back(Start(client));
      EXPECT_EQ(boxes.back().Sh("echo up").text, "up\n");
      EXPECT_THAT(ChildrenNamed(client.pid(), "caisson-network"), ::testing::IsEmpty());
    }
    for (Box& box : boxes) EXPECT_TRUE(Terminate(client, box).ok());
    if (killed) {
      client.CloseSocket();
      EXPECT_EQ(client.WaitForExit(), 0);
    } else {
      client.KillHard();
    }
    EXPECT_TRUE(Ended(maker, 30'000));
  }
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, NothingOfTheLauncherIsInherited) {
  signal(SIGPIPE, SIG_IGN);  // as a server does
  Client client(state_dir_, "--keep");
  signal(SIGPIPE, SIG_DFL);
  Box box = Start(client);
  EXPECT_EQ(box.Sh("grep -E 'Sig(Ign|Blk)' /proc/self/status; umask").text,
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n0022\n");
  std::string fds = "/proc/" + std::to_string(box.pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(fds)) {
    std::string target = std::filesystem::read_symlink(entry.path());
    EXPECT_THAT(target, ::testing::Not(HasSubstr("anon_inode"))) << entry.path();  // epoll, pidfd
    EXPECT_THAT(target, ::testing::Not(HasSubstr(state_dir_)));
  }
  Result<std::string> environment = ReadWholeFile("/proc/" + std::to_string(box.pid) + "/environ");
  EXPECT_THAT(environment.value(), ::testing::Not(HasSubstr("HOME")));
  EXPECT_TRUE(Terminate(client, box).ok());
}

TEST_F(LauncherTest, SparedByTheOutOfMemoryKillerIsNotInherited) {
  // Lowering it takes a right that not every root has.
  if (!WriteControlFile("/proc/self/oom_score_adj", "-500").has_value()) {
    GTEST_SKIP() << "lowering the oom score needs CAP_SYS_RESOURCE";
  }
  Client client(state_dir_, "--keep");
  Box box = Start(client);
  EXPECT_TRUE(WriteControlFile("/proc/self/oom_score_adj", "0").has_value());
  EXPECT_EQ(box.Sh("cat /proc/self/oom_score_adj").text, "0\n");
  EXPECT_TRUE(Terminate(client, box).ok());
}

TEST_F(LauncherTest, TerminateSparesAProcessThatStartedAtAnotherTime) {
  Client client(state_dir_, "--keep");
  Box box = Start(client);
  Request request;
  request.op = Op::kTerminate;
  request.pid = box.pid;
  request.start_time = box.start_time + 1;
  EXPECT_TRUE(client.Call(request).ok());
  EXPECT_FALSE(Ended(box, 100));
  request.op = Op::kFind;
  EXPECT_EQ(client.Call(request).reply.status, Status::kGone);
  request.start_time = box.start_time;
  Answer found = client.Call(request);
  EXPECT_TRUE(found.ok() && found.fd);
  EXPECT_TRUE(Terminate(client, box).ok());
  EXPECT_EQ(client.Call(request).reply.status, Status::kGone);
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, FailingStepIsNamedAndCleanedUp) {
  struct Case {
    const char* text;
    LaunchStep step;
    int error;
    void (*spoil)(LaunchPlan&);
  };
  const Case cases[] = {
      {"/no/such/dir", LaunchStep::kMounts, ENOENT,
       [](LaunchPlan& p) { p.mounts[0].source = "/no/such/dir"; }},
      {"stage", LaunchStep::kMounts, ENOENT, [](LaunchPlan& p) { p.stage_dir = "/no/stage"; }},
      {"memory.max_none", LaunchStep::kCgroups, ENOENT,
       [](LaunchPlan& p) { p.cgroups.back().writes.push_back({"memory.max_none", "1"}); }},
      {"not on a cgroup file system", LaunchStep::kCgroups, EINVAL,
       [](LaunchPlan& p) { p.cgroups.back().path = "/tmp/no-cgroup-here"; }},
      {"namespaces or id maps", LaunchStep::kClone, EINVAL,
       [](LaunchPlan& p) { p.namespaces = 0; }},
      {"namespaces or id maps", LaunchStep::kClone, EINVAL,
       [](LaunchPlan& p) { p.uid_map.clear(); }},
      {"uid_map", LaunchStep::kUserNamespace, EINVAL,
       [](LaunchPlan& p) { p.uid_map[0].count = 0; }},
      {"clone3 spawner", LaunchStep::kSpawner, EAGAIN,
       [](LaunchPlan& p) {
         for (CgroupDir& dir : p.cgroups) {
           if (dir.role == CgroupDir::Role::kCommand) continue;
           for (CgroupDir::Write& entry : dir.writes) {
             if (entry.file == "pids.max") entry.value = "1";
           }
         }
       }},
      {"setresuid", LaunchStep::kIdentity, EINVAL, [](LaunchPlan& p) { p.guest_uid = 70000; }},
      {"setrlimit 99", LaunchStep::kLimits, EINVAL, [](LaunchPlan& p) { p.limits = {{99, 1, 1}}; }},
      {"landlock rule /nowhere", LaunchStep::kLandlock, ENOENT,
       [](LaunchPlan& p) { p.landlock_rules.push_back({"/nowhere", 1}); }},
      {"seccomp", LaunchStep::kSeccomp, EINVAL, [](LaunchPlan& p) { p.outer_filter = "abc"; }},
  };
  Client client(state_dir_, "--keep");
  for (const Case& c : cases) {
    Box box = Prepare(Spec());
    c.spoil(box.plan);
    Answer answer = Create(client, box);
    EXPECT_EQ(answer.reply.status, Status::kFailed) << c.text;
    EXPECT_EQ(NameOf(answer.reply.step), NameOf(c.step)) << answer.ToString();
    EXPECT_EQ(answer.reply.error_number, c.error) << answer.ToString();
    EXPECT_THAT(answer.text, HasSubstr(c.text));
    unlink(box.socket_path.c_str());
    ExpectCensusAsBefore();
  }
}

TEST_F(LauncherTest, GuestThatDoesNotComeUpIsReported) {
  struct Case {
    const char* config;
    LaunchStep step;
    const char* text;
  };
  const Case cases[] = {
      {"exit", LaunchStep::kGuestReady, "the new process ended"},
      {"crash", LaunchStep::kGuestReady, "killed by signal"},
      {"refuse", LaunchStep::kGuestReady, "guest: no such user"},
      {"babble", LaunchStep::kGuestReady, "unexpected letter"},
      {"hang", LaunchStep::kGuestReady, "not done before the deadline"},
  };
  Client client(state_dir_, "--keep");
  for (const Case& c : cases) {
    Box box = Prepare(Spec());
    Answer answer = Create(client, box, c.config);
    EXPECT_EQ(answer.reply.status, Status::kFailed) << c.config;
    EXPECT_EQ(NameOf(answer.reply.step), NameOf(c.step)) << c.config << answer.ToString();
    EXPECT_THAT(answer.text, HasSubstr(c.text)) << c.config;
    unlink(box.socket_path.c_str());
    ExpectCensusAsBefore();
  }
}

TEST_F(LauncherTest, RequestsThatMakeNoSenseAreAnswered) {
  Client client(state_dir_, "--keep");
  Request request;
  request.op = Op::kCreate;
  Answer answer = client.Call(request);
  EXPECT_EQ(answer.reply.error_number, EBADF);
  UniqueFd junk = MakeSealedMemFd("plan", "not a plan").value();
  int fd = junk.get();
  answer = client.Call(request, {}, {fd, fd, fd, fd, fd, fd});
  EXPECT_EQ(answer.reply.step, LaunchStep::kDecodePlan);
  EXPECT_EQ(answer.reply.error_number, EINVAL);
  answer = client.Call(request, {}, {fd, fd, fd, fd, fd, fd, fd, fd});
  EXPECT_EQ(answer.reply.error_number, EMSGSIZE);
}

TEST_F(LauncherTest, SomebodyElsesCgroupIsNotTouched) {
  Client client(state_dir_, "--keep");
  Box first = Start(client);
  Box second = Prepare(Spec());
  second.plan.cgroups = first.plan.cgroups;
  Answer answer = Create(client, second);
  EXPECT_EQ(answer.reply.step, LaunchStep::kCgroups);
  EXPECT_EQ(answer.reply.error_number, EEXIST);
  EXPECT_EQ(first.Sh("echo alive").text, "alive\n");
  unlink(second.socket_path.c_str());
  EXPECT_TRUE(Terminate(client, first).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, HundredAtOnce) {
  Client client(state_dir_, "--keep");
  std::vector<Box> boxes;
  std::vector<uint32_t> ids;
  for (int i = 0; i < 100; i++) boxes.push_back(Prepare(Spec()));
  for (Box& box : boxes) ids.push_back(SendCreate(client, box));
  for (size_t i = 0; i < boxes.size(); i++) {
    Answer answer = client.Wait(ids[i]);
    ASSERT_TRUE(answer.ok()) << answer.ToString();
    boxes[i].pid = answer.reply.pid;
    boxes[i].start_time = answer.reply.start_time;
  }
  for (size_t i = 0; i < boxes.size(); i += 9) {
    EXPECT_EQ(boxes[i].Sh("echo " + boxes[i].id).text, boxes[i].id + "\n");
  }
  for (Box& box : boxes) EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, KeptSandboxOutlivesALauncherThatIsKilled) {
  Box box;
  {
    Client client(state_dir_, "--keep");
    box = Start(client);
    client.KillHard();
  }
  EXPECT_EQ(box.Sh("echo still here").text, "still here\n");
  Client next(state_dir_, "--keep");
  Request request;
  request.op = Op::kFind;
  request.pid = box.pid;
  request.start_time = box.start_time;
  EXPECT_TRUE(next.Call(request).ok());
  Answer answer = Terminate(next, box);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_TRUE(Ended(box, 0));
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, KeptSandboxOutlivesTheControlSocket) {
  Box box;
  {
    Client client(state_dir_, "--keep");
    box = Start(client);
    client.CloseSocket();
    EXPECT_EQ(client.WaitForExit(), 0);
  }
  EXPECT_EQ(box.Sh("echo still here").text, "still here\n");
  Client next(state_dir_, "--keep");
  EXPECT_TRUE(Terminate(next, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, EphemeralEndsEverythingWithItsSocket) {
  Client client(state_dir_, "--ephemeral");
  Box first = Start(client);
  Box second = Start(client);
  Box ended = Start(client);
  Box unfinished = Prepare(Spec());
  // One that ended by itself, one that is being made.
  kill(ended.pid, SIGKILL);
  EXPECT_TRUE(Ended(ended));
  SendCreate(client, unfinished, "hang");
  client.CloseSocket();
  EXPECT_EQ(client.WaitForExit(), 0);
  for (const Box* box : {&first, &second, &ended, &unfinished}) unlink(box->socket_path.c_str());
  EXPECT_TRUE(Ended(first, 0) && Ended(second, 0));
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, DyingLauncherTakesItsSandboxAlong) {
  Box box;
  {
    Client client(state_dir_, "--ephemeral");
    box = Prepare(Spec());
    box.plan.die_with_launcher = true;
    ASSERT_TRUE(Create(client, box).ok());
    EXPECT_EQ(box.Sh("setsid sleep 1000 >/dev/null 2>&1 & echo started").text, "started\n");
    client.KillHard();
  }
  EXPECT_TRUE(Ended(box));
  // The cgroups cannot be removed by the dead; the next launcher does it.
  Client next(state_dir_, "--keep");
  EXPECT_TRUE(Terminate(next, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, LauncherKilledDuringCreationsLeavesNoProcess) {
  std::vector<Box> boxes;
  {
    Client client(state_dir_, "--keep");
    for (int i = 0; i < 10; i++) boxes.push_back(Prepare(Spec()));
    for (Box& box : boxes) SendCreate(client, box);
    usleep(3000);
    client.KillHard();
  }
  // Some were ready, the others end by themselves; their cgroups are known to the server.
  Client next(state_dir_, "--keep");
  for (Box& box : boxes) {
    UniqueFd procs;
    Answer answer = Terminate(next, box, 5000);
    EXPECT_TRUE(answer.ok()) << answer.ToString();
  }
  ExpectCensusAsBefore();
}

TEST_F(LauncherTest, ProcessInTheCgroupFromOutsideMakesTheEndPending) {
  if (facts_.cgroups.v1_pids.empty()) GTEST_SKIP() << "on v2 it is killed by cgroup.kill";
  Client client(state_dir_, "--keep");
  Box box = Start(client);
  std::string cmd = facts_.cgroups.v1_pids + "/caisson-" + box.id + "/cmd";
  pid_t intruder = fork();
  if (intruder == 0) {
    pause();
    _exit(0);
  }
  ASSERT_TRUE(WriteControlFile(cmd + "/cgroup.procs", std::to_string(intruder)).has_value());
  Answer answer = Terminate(client, box, 200);
  EXPECT_EQ(answer.reply.status, Status::kPending) << answer.ToString();
  EXPECT_EQ(answer.reply.error_number, EBUSY);
  kill(intruder, SIGKILL);
  waitpid(intruder, nullptr, 0);
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

}  // namespace
}  // namespace caisson::launcher::testing
