// caisson exec, as a user types it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "host_census.h"
#include "program.h"

namespace caisson::program_test {
namespace {

class ExecTest : public ::testing::Test {
 public:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    before_ = HostCensus();
  }
  void TearDown() override {
    if (!IsSkipped()) EXPECT_EQ(LeftBehind(before_), std::set<std::string>());
  }
  static Finished Exec(std::vector<std::string> command, std::string input = "",
                       std::vector<std::string> options = {}) {
    std::vector<std::string> arguments{"exec"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.emplace_back("--");
    arguments.insert(arguments.end(), command.begin(), command.end());
    return RunCaisson(std::move(arguments), std::move(input));
  }
  static Finished Shell(const std::string& text, std::string input = "",
                        std::vector<std::string> options = {}) {
    return Exec({"sh", "-c", text}, std::move(input), std::move(options));
  }
  std::set<std::string> before_;
};

TEST_F(ExecTest, GivesOutputErrorAndCode) {
  Finished result = Shell("echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST_F(ExecTest, PassesStandardInputInAPipeline) {
  std::string data(3'000'000, 'x');
  EXPECT_EQ(Exec({"cat"}, data).out, data);
  EXPECT_EQ(Exec({"tr", "a-z", "A-Z"}, "hello").out, "HELLO");
  EXPECT_EQ(Exec({"true"}, data).code, 0) << "a command may leave its input unread";
}

TEST_F(ExecTest, Case02_TimeoutIs124AndKillsEverything) {
  Finished result =
      Shell("setsid sleep 1000 & trap '' TERM; echo begin; sleep 1000", "", {"--timeout", "300ms"});
  EXPECT_EQ(result.code, 124);
  EXPECT_EQ(result.out, "begin\n");
}

TEST_F(ExecTest, SignalsAre128AndMore) { EXPECT_EQ(Shell("kill -KILL $$").code, 137); }

TEST_F(ExecTest, MissingAndWrongProgramsAreNamed) {
  EXPECT_EQ(Exec({"no-such-program"}).code, 127);
  EXPECT_EQ(Exec({"/etc/passwd"}).code, 126);
  Finished cwd = Exec({"true"}, "", {"--cwd", "/nowhere"});
  EXPECT_EQ(cwd.code, 125);
  EXPECT_NE(cwd.err.find("invalid_cwd"), std::string::npos) << cwd.err;
}

TEST_F(ExecTest, WrongArgumentsAreUsageErrors) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--timeout", "soon"}, std::vector<std::string>{"--memory", "many"},
        std::vector<std::string>{"--env", "=x"},
        std::vector<std::string>{"--rootfs", "/nonexistent"}}) {
    Finished result = Exec({"true"}, "", options);
    EXPECT_EQ(result.code, 2) << options[0];
    EXPECT_NE(result.err.find("caisson: invalid_argument"), std::string::npos) << result.err;
  }
  EXPECT_EQ(RunCaisson({"exec"}).code, 2);
  EXPECT_EQ(RunCaisson({"no-such-command"}).code, 2);
  EXPECT_EQ(Exec({"true"}, "", {"--profile", "no-such-profile"}).code, 125);
}

TEST_F(ExecTest, SeesNothingOfTheHost) {
  EXPECT_EQ(Shell("ls /root /home/user /var/lib/dpkg 2>&1; cat /proc/1/environ; hostname").code, 0);
  EXPECT_EQ(Shell("ls / | tr '\\n' ' '").out.find("root"), std::string::npos);
  EXPECT_NE(Shell("echo x > /usr/bin/x").code, 0);
  EXPECT_EQ(Shell("echo x > file && cat file && echo y > /tmp/y && id -u").out, "x\n1000\n");
  EXPECT_EQ(Shell("ls /proc | grep -c '^[0-9]'").out.size(), 2u) << "few processes, all its own";
}

TEST_F(ExecTest, Case15_LimitsBiteAndAreNamed) {
  Finished memory = Shell("head -c 200000000 /dev/zero | tail", "", {"--memory", "32M"});
  EXPECT_NE(memory.code, 0);
  EXPECT_NE(memory.err.find("oom"), std::string::npos) << memory.err;
  Finished disk = Shell("head -c 50000000 /dev/zero > big", "", {"--disk", "8M"});
  EXPECT_NE(disk.code, 0);
  EXPECT_NE(disk.err.find("No space left"), std::string::npos) << disk.err;
  Finished pids =
      Shell("f() { f | f & }; f; wait; echo survived", "", {"--pids", "32", "--timeout", "20"});
  EXPECT_LE(pids.code, 124);
}

TEST_F(ExecTest, Case16_LargeOutputPassesWhole) {
  Finished result = Shell("head -c 50000000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.size(), 50'000'000u);
}

TEST_F(ExecTest, ArgumentsMayBeAnyBytes) {
  EXPECT_EQ(Exec({"printf", "%s", "\xff\xfe a\n\"b' $x"}).out, "\xff\xfe a\n\"b' $x");
}

TEST_F(ExecTest, ManyAtOnceDoNotMeet) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([i] {
      std::string number = std::to_string(i);
      Finished result = Shell("echo " + number + " > f; sleep 0.2; cat f; exit " + number);
      EXPECT_EQ(result.code, i);
      EXPECT_EQ(result.out, number + "\n");
    });
  }
}

TEST_F(ExecTest, InterruptReachesTheCommand) {
  Service service({"exec", "--", "sh", "-c",
                   "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"});
  EXPECT_EQ(service.first_line(), "ready");
  EXPECT_EQ(service.Stop(SIGINT), 9);
}

TEST_F(ExecTest, AKilledCallerLeavesNothingRunning) {
  Service service({"exec", "--", "sh", "-c", "echo ready; sleep 1000"});
  EXPECT_EQ(service.first_line(), "ready");
  EXPECT_EQ(service.Stop(SIGKILL), 137);
  // Nobody is left to remove the caller's own directory: the next one does. Processes and cgroups
  // must go by themselves.
  EXPECT_TRUE(Eventually([&] {
    EXPECT_EQ(Exec({"true"}).code, 0);
    for (const std::string& line : HostCensus()) {
      if (line.starts_with("file ") && !before_.contains(line)) return false;
    }
    return true;
  }));
}

// Without root: the full profile is refused and names the other, which works.
// `caisson exec` as another user than root.
Finished RunAsNobody(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"--reuid=61234", "--regid=61234", "--clear-groups",
                                     ProgramPath(), "exec"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunProgram("/usr/bin/setpriv", std::move(arguments));
}

class Rootless : public ::testing::Test {
 public:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "takes another user by itself";
    if (RunAsNobody({"--help"}).err.find("Permission denied") != std::string::npos) {
      GTEST_SKIP() << "another user cannot reach " << ProgramPath();
    }
  }
};

// What a command can do to the other processes of its sandbox, the guest and its spawner: nothing,
// also where all have one uid.
constexpr const char* kReachOthers =
    "n=0; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] && continue; "
    "case $(cat $p/comm) in caisson-spawn | memfd:caisson*) n=$((n+1)) ;; *) continue ;; esac; "
    "(cat $p/environ) >/dev/null 2>&1 && echo $p environ; "
    "(cat $p/maps) >/dev/null 2>&1 && echo $p maps; (exec 3<$p/mem) 2>/dev/null && echo $p reads; "
    "(exec 3<>$p/mem) 2>/dev/null && echo $p writes; "
    "for f in $p/fd/*; do readlink $f && echo $p fd; done 2>/dev/null; done; echo $n tried";

TEST_F(ExecTest, Check20_TheGuestAndItsSpawnerAreOutOfReach) {
  EXPECT_EQ(Shell(kReachOthers).out, "2 tried\n");
}

TEST_F(Rootless, Check20_TheGuestAndItsSpawnerAreOutOfReach) {
  Finished result = RunAsNobody({"--profile", "default-rootless", "--", "sh", "-c", kReachOthers});
  EXPECT_EQ(result.out, "2 tried\n") << result.err;
}

TEST_F(Rootless, TheRefusalNamesTheProfileThatDoes) {
  Finished refused = RunAsNobody({"--", "true"});
  EXPECT_EQ(refused.code, 125);
  EXPECT_NE(refused.err.find("default-rootless"), std::string::npos) << refused.err;
  Finished result = RunAsNobody({"--profile", "default-rootless", "--", "sh", "-c",
                                 "echo x > f && cat f; echo y > /usr/y; exit 3"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(result.out, "x\n");
}

TEST(Doctor, SaysWhatHolds) {
  Finished human = RunCaisson({"doctor"});
  EXPECT_NE(human.out.find("seccomp"), std::string::npos);
  Finished as_json = RunCaisson({"doctor", "--json"});
  EXPECT_TRUE(json::ParseObject(as_json.out).has_value()) << as_json.out;
}

TEST(Help, IsEverywhere) {
  EXPECT_EQ(RunCaisson({"--help"}).code, 0);
  EXPECT_EQ(RunCaisson({"--version"}).code, 0);
  for (const char* command : {"serve", "run", "exec", "doctor", "demo-model", "sessions", "agents",
                              "providers", "sandboxes", "runs", "events"}) {
    Finished help = RunCaisson({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Usage"), std::string::npos) << command;
  }
}

}  // namespace
}  // namespace caisson::program_test
