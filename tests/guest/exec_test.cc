// How commands start, end and are held, with both ways to track their trees. Case numbers are those
// of the reported faults that each kind of test stands for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <thread>

#include "exec_fixture.h"

namespace caisson::guest {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace json = boost::json;

TEST_P(GuestExec, SaysHowItTracks) {
  auto hello = guest_->Call("GET", kPathHello, {}, {{"Authorization", "none"}}).Json();
  std::string features = json::serialize(hello.at("features"));
  EXPECT_THAT(features,
              HasSubstr(GetParam() == Tracking::kCgroup ? "exec.cgroup2" : "exec.supervisor"));
  EXPECT_TRUE(hello.at("pid1").as_bool());
  EXPECT_TRUE(hello.at("uid_separation").as_bool());
}

TEST_P(GuestExec, Case01_BackgroundChildDoesNotHoldTheReply) {
  ExecResult first = guest_->Shell("sleep 30 & echo started", 10'000);
  EXPECT_EQ(first.out, "started\n");
  EXPECT_EQ(first.ExitCode(), 0);
  EXPECT_LT(first.elapsed_ms, 1000);
  EXPECT_EQ(first.exit.at("still_running").as_int64(), 1);
  ExecResult second = guest_->Shell("echo two");
  EXPECT_EQ(second.out, "two\n");
  EXPECT_LT(second.elapsed_ms, 500);
  EXPECT_EQ(Count("sleep"), 1);  // it lives on
  std::string id(json::parse(first.records.front().payload).at("id").as_string());
  EXPECT_EQ(guest_->Call("DELETE", "/v1/execs/" + id).status, 200);
  EXPECT_EQ(Count("sleep"), 0);
  EXPECT_EQ(guest_->Call("GET", "/v1/execs/" + id).Code(), "exec_not_found");
}

TEST_P(GuestExec, Case02_TimeoutKillsWholeTree) {
  ExecResult result =
      guest_->Shell("sh -c 'sleep 60 & wait' & (setsid sleep 61 &) ; echo begin; sleep 62", 700);
  EXPECT_EQ(result.out, "begin\n");
  EXPECT_EQ(result.Reason(), "timeout");
  EXPECT_FALSE(result.ExitCode().has_value());
  EXPECT_EQ(result.exit.at("still_running").as_int64(), 0);
  EXPECT_LT(result.elapsed_ms, 1500);
  EXPECT_EQ(Count("sleep"), 0);
}

TEST_P(GuestExec, Case02_StubbornTreesAreKilled) {
  // Ignores TERM, is stopped, has its own session, has forked twice.
  ExecResult result = guest_->Shell(
      "trap '' TERM INT HUP; (trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 60 & sleep 61' &) &"
      " sleep 62 & kill -STOP $!; (setsid setsid sleep 63 &); sleep 64",
      500);
  EXPECT_EQ(result.Reason(), "timeout");
  EXPECT_LT(result.elapsed_ms, 2000);
  EXPECT_EQ(Count("sleep"), 0);
}

TEST_P(GuestExec, Case02_ForkStormIsKilled) {
  ExecResult result = guest_->Shell(
      "i=0; while [ $i -lt 40 ]; do (while :; do sh -c 'sleep 5 &' ; done) & i=$((i+1)); done; "
      "wait",
      500);
  EXPECT_EQ(result.Reason(), "timeout");
  EXPECT_EQ(Count("sleep"), 0);
}

TEST_P(GuestExec, Case08_LargeCommandsRun) {
  ExecResult result =
      guest_->Shell(": " + std::string(300'000, 'x') + "\necho done; ls /proc/self/fd | wc -l");
  EXPECT_EQ(result.out, "done\n4\n");  // 0, 1, 2 and the listing's own
  for (size_t size : {131'070U, 131'071U, 131'072U}) {
    std::string text = "echo ok #";
    text.resize(size, 'y');
    EXPECT_EQ(guest_->Shell(text).out, "ok\n") << size;
  }
  json::object large{{"command", "true"}, {"env", {{"BIG", std::string(140'000, 'v')}}}};
  EXPECT_EQ(guest_->Exec(large).error, "argument_too_large");
  json::object many{{"command", "echo ${#A}"},
                    {"env", {{"A", std::string(100'000, 'a')}, {"B", std::string(100'000, 'b')}}}};
  EXPECT_EQ(guest_->Exec(many).out, "100000\n");
  json::object argument{{"argv", {"echo", std::string(140'000, 'v')}}};
  EXPECT_EQ(guest_->Exec(argument).error, "argument_too_large");
}

TEST_P(GuestExec, Case09_Heredocs) {
  EXPECT_EQ(guest_->Shell("cat > f <<'EOF'\na \"$x\" \\\\ é\nEOF\nwc -c < f").out, "13\n");
  EXPECT_LT(guest_->Shell("cat <<END\nnever closed").elapsed_ms, 2000);
  EXPECT_EQ(guest_->Shell("echo alive").out, "alive\n");
}

TEST_P(GuestExec, Case10_TheShellJudges) {
  EXPECT_EQ(guest_->Shell("awk 'BEGIN{print \"a'\"'\"'b\"}'").out, "a'b\n");
  EXPECT_EQ(guest_->Shell("case x in (x) echo y;; esac").out, "y\n");
  ExecResult wrong = guest_->Shell("if then");
  EXPECT_EQ(wrong.status, 200);
  EXPECT_EQ(wrong.ExitCode(), 2);
  EXPECT_FALSE(wrong.err.empty());
}

TEST_P(GuestExec, Case13_NoControllingTerminal) {
  ExecResult result = guest_->Shell("read -r x < /dev/tty; echo $?", 5'000);
  EXPECT_NE(result.out, "0\n");
  EXPECT_EQ(result.Reason(), "exited");
}

TEST_P(GuestExec, Case14_WorkingDirectories) {
  guest_->Shell("mkdir d gone; chmod 0 d; touch file");
  auto in = [&](const std::string& cwd) {
    return guest_->Exec({{"command", "pwd"}, {"cwd", guest_->work_dir() + "/" + cwd}}).error;
  };
  EXPECT_EQ(in("file"), "invalid_cwd");
  EXPECT_EQ(in("missing"), "invalid_cwd");
  EXPECT_EQ(in("d"), "invalid_cwd");
  EXPECT_EQ(in("gone"), "");
  guest_->Shell("rmdir gone");
  EXPECT_EQ(in("gone"), "invalid_cwd");
  EXPECT_EQ(guest_->Exec({{"command", "pwd"}, {"cwd", "relative"}}).error, "invalid_cwd");
}

TEST_P(GuestExec, UmaskAndLoginShellAreAsAsked) {
  EXPECT_EQ(guest_->Shell("umask").out, "0022\n");
  EXPECT_EQ(guest_->Exec({{"command", "umask; touch f; stat -c %a f"}, {"umask", "0077"}}).out,
            "0077\n600\n");
  EXPECT_EQ(guest_->Exec({{"argv", {"sh", "-c", "umask"}}, {"umask", "2"}}).out, "0002\n");
  // The profile of the home directory is read by a login shell only.
  guest_->Shell("echo 'export FROM_PROFILE=yes' > ~/.profile");
  EXPECT_EQ(guest_->Exec({{"command", "echo $FROM_PROFILE"}}).out, "\n");
  EXPECT_EQ(guest_->Exec({{"command", "echo $FROM_PROFILE"}, {"login", true}}).out, "yes\n");
  std::string large(200'000, '#');
  EXPECT_EQ(guest_->Exec({{"command", "echo $FROM_PROFILE " + large}, {"login", true}}).out,
            "yes\n");
}

TEST_P(GuestExec, Case17_QuotingAndEnvironment) {
  std::string a = "x y; $(id) \"q\" \n é";
  ExecResult result = guest_->Exec(
      {{"command", "echo \"$A\" '$A' \\$A \"a  b\" 'c'\"'\"'d' | cat; false && echo no; echo $?"},
       {"env", {{"A", a}}}});
  EXPECT_EQ(result.out, a + " $A $A a  b c'd\n1\n");
  EXPECT_EQ(guest_->Exec({{"argv", {"printf", "%s|", "a b", "$A", "'", ""}}}).out, "a b|$A|'||");
}

TEST_P(GuestExec, Case17_TheLeanEnvironment) {
  ExecResult result = guest_->Shell(
      "env | sort | cut -d= -f1 | grep -v -e _ -e OLDPWD -e SHLVL | tr '\\n' ' '; umask");
  EXPECT_EQ(result.out, "HOME LANG LOGNAME PATH PWD SHELL TERM USER 0022\n");
  EXPECT_EQ(guest_->Exec({{"command", "true"}, {"env", {{"A=B", "x"}}}}).error, "invalid_argument");
  EXPECT_EQ(guest_->Exec({{"command", "true"}, {"env", {{"", "x"}}}}).error, "invalid_argument");
}

TEST_P(GuestExec, Case18_ManyAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 40; i++) {
    threads.emplace_back([&, i] {
      std::string name = "id" + std::to_string(i);
      ExecResult result = guest_->Shell("i=0; while [ $i -lt 300 ]; do echo " + name +
                                        "; i=$((i+1)); done; exit " + std::to_string(i));
      std::string expected;
      for (int k = 0; k < 300; k++) expected += name + "\n";
      if (result.out != expected || result.ExitCode() != i) wrong++;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  if (GetParam() == Tracking::kCgroup)
    EXPECT_TRUE(WaitFor([&] { return guest_->CgroupCount() == 0; }));
}

TEST_P(GuestExec, Check19_OnlyStandardDescriptors) {
  EXPECT_EQ(guest_->Shell("ls /proc/self/fd | wc -l").out, "4\n");
  EXPECT_EQ(guest_->Exec({{"argv", {"ls", "/proc/self/fd"}}}).out, "0\n1\n2\n3\n");
}

TEST_P(GuestExec, Check20_NothingOfTheGuestIsReadable) {
  ExecResult result = guest_->Shell(
      "cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd /proc/2/fd; cat /proc/2/environ; env");
  EXPECT_THAT(result.out, Not(HasSubstr("SECRET_OF_THE_SERVER")));
  EXPECT_THAT(result.out, Not(HasSubstr("CAISSON_GUEST")));
  EXPECT_THAT(result.out, Not(HasSubstr("socket:")));
}

TEST_P(GuestExec, Check21_KillingEverybodyHitsOnlyOnesOwn) {
  ExecResult result = guest_->Shell("kill -9 -1; kill -9 1; kill -9 2; echo here");
  EXPECT_EQ(result.status, 200);
  EXPECT_EQ(guest_->Shell("echo usable").out, "usable\n");
}

TEST_P(GuestExec, Check22_NoPrivileges) {
  ExecResult result =
      guest_->Shell("id -u; id -g; id -G; grep -E 'CapEff|CapPrm|NoNewPrivs' /proc/self/status");
  EXPECT_THAT(result.out, HasSubstr("1000\n1000\n1000\n"));
  EXPECT_THAT(result.out, HasSubstr("CapPrm:\t0000000000000000"));
  EXPECT_THAT(result.out, HasSubstr("NoNewPrivs:\t1"));
}

TEST_P(GuestExec, SignalsAndReasons) {
  ExecResult own = guest_->Shell("kill -SEGV $$");
  EXPECT_EQ(own.Reason(), "signaled");
  EXPECT_EQ(own.exit.at("signal").as_string(), "SEGV");
  EXPECT_TRUE(own.exit.at("code").is_null());
  ExecStream stream(
      guest_->socket_path(), "POST", kPathExecs,
      R"({"id":"s1","command":"trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.05; done"})");
  stream.Next();
  EXPECT_EQ(stream.Next()->payload, "up\n");
  EXPECT_EQ(Signal("s1", "TERM", "leader").status, 200);
  ExecResult trapped;
  Collect(stream, trapped);
  EXPECT_EQ(trapped.ExitCode(), 5);
  EXPECT_EQ(trapped.Reason(), "exited");
  EXPECT_EQ(Signal("s1", "TERM", "leader").Code(), "exec_ended");
  ExecStream second(guest_->socket_path(), "POST", kPathExecs,
                    R"({"id":"s2","command":"(setsid sleep 50 &); sleep 51"})");
  second.Next();
  EXPECT_EQ(Signal("s2", "KILL", "tree").status, 200);
  ExecResult killed;
  Collect(second, killed);
  EXPECT_EQ(killed.Reason(), "killed");
  EXPECT_EQ(Count("sleep"), 0);
  EXPECT_EQ(Signal("nobody", "KILL", "tree").Code(), "exec_not_found");
}

TEST_P(GuestExec, ProgramsThatDoNotStart) {
  EXPECT_EQ(guest_->Exec({{"argv", {"no-such-program"}}}).error, "command_not_found");
  EXPECT_EQ(guest_->Exec({{"argv", {"/no/such"}}}).error, "command_not_found");
  EXPECT_EQ(guest_->Exec({{"argv", {"/etc/passwd"}}}).error, "command_not_executable");
  EXPECT_EQ(guest_->Exec({{"argv", {"/tmp"}}}).error, "command_not_executable");
  guest_->Shell("printf '#!/no/interpreter\\n' > i; printf 'echo x' > n; chmod +x i n");
  EXPECT_EQ(guest_->Exec({{"argv", {"./i"}}}).error, "command_not_executable");
  EXPECT_EQ(guest_->Exec({{"argv", {"./n"}}}).error, "command_not_executable");
  EXPECT_EQ(guest_->Exec({{"argv", json::array{}}}).error, "invalid_argument");
  EXPECT_EQ(guest_->Exec({{"command", "true"}, {"argv", {"true"}}}).error, "invalid_argument");
  EXPECT_EQ(guest_->Exec({{"command", 5}}).error, "invalid_argument");
  EXPECT_EQ(guest_->Shell("echo fine").out, "fine\n");
  if (GetParam() == Tracking::kCgroup)
    EXPECT_TRUE(WaitFor([&] { return guest_->CgroupCount() == 0; }));
}

TEST_P(GuestExec, OutOfMemoryOnlyOnEvidence) {
  std::string events = "/tmp/caisson-guest-events-" + std::to_string(::getpid());
  std::ofstream(events) << "low 0\noom 0\noom_kill 0\n";
  GuestProcess::Options options;
  options.mem_events = events;
  StartGuest(options);
  EXPECT_EQ(guest_->Shell("kill -9 $$").Reason(), "signaled");
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"command":"sleep 0.3; kill -9 $$"})");
  stream.Next();
  std::ofstream(events) << "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
  ExecResult result;
  Collect(stream, result);
  EXPECT_EQ(result.Reason(), "oom");
  EXPECT_EQ(guest_->Shell("kill -9 $$").Reason(), "signaled");
  ::unlink(events.c_str());
}

TEST_P(GuestExec, TheFilterIsLoaded) {
  // uname answers EPERM, the rest is allowed.
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_uname, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  GuestProcess::Options options;
  const auto* bytes = reinterpret_cast<const uint8_t*>(program);
  options.filter.assign(bytes, bytes + sizeof program);
  StartGuest(options);
  ExecResult result = guest_->Shell("grep Seccomp: /proc/self/status; uname");
  EXPECT_THAT(result.out, HasSubstr("Seccomp:\t2"));
  EXPECT_NE(result.ExitCode(), 0);
}

TEST_P(GuestExec, WorksWithoutNewerSystemCalls) {
  GuestProcess::Options options;
  options.prepare = [](const std::string&) {
    // As an old kernel or an outer filter answers.
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(119);
  };
  StartGuest(options);
  ExecResult result =
      guest_->Shell("ls /proc/self/fd | wc -l; sleep 60 & (setsid sleep 61 &); sleep 62", 500);
  EXPECT_EQ(result.out, "4\n");
  EXPECT_EQ(result.Reason(), "timeout");
  EXPECT_EQ(Count("sleep"), 0);
  EXPECT_EQ(
      guest_->Shell(": " + std::string(300'000, 'x') + "\necho done; ls /proc/self/fd | wc -l").out,
      "done\n4\n");
  EXPECT_EQ(guest_->Exec({{"argv", {"printf", "%.3s", std::string(100'000, 'a')}}}).out, "aaa");
  EXPECT_EQ(guest_->Exec({{"argv", {"none"}}}).error, "command_not_found");
}

TEST_P(GuestExec, EndedOnesAreForgottenInTheirOrder) {
  for (int i = 0; i < 260; i++)
    guest_->Exec({{"argv", {"/bin/true"}}, {"id", "e" + std::to_string(i)}});
  EXPECT_EQ(guest_->Call("GET", "/v1/execs/e0").Code(), "exec_not_found");
  EXPECT_EQ(guest_->Call("GET", "/v1/execs/e259").status, 200);
  EXPECT_EQ(guest_->Call("GET", kPathExecs).Json().at("execs").as_array().size(), 256U);
}

TEST_P(GuestExec, AtMost256Commands) {
  for (size_t i = 0; i < kMaxExecs; i++) {
    ASSERT_EQ(
        guest_->Call("POST", kPathExecs, R"({"background":true,"argv":["sleep","60"]})").status,
        201)
        << i;
  }
  EXPECT_EQ(guest_->Call("POST", kPathExecs, R"({"argv":["true"]})").Code(), "too_many_execs");
  EXPECT_EQ(guest_->Call("POST", kPathShutdown).status, 200);
  EXPECT_EQ(guest_->WaitExit(), 0);
  guest_.reset();
}

TEST_P(GuestExec, ShutdownKillsAndExits) {
  guest_->Shell("setsid sleep 40 & sleep 41 &");
  EXPECT_EQ(guest_->Call("POST", kPathShutdown).status, 200);
  EXPECT_EQ(guest_->WaitExit(), 0);
  guest_.reset();
}

TEST_P(GuestExec, TermSignalKillsAndExits) {
  guest_->Exec({{"command", "sleep 42"}, {"background", true}});
  ::kill(guest_->pid(), SIGTERM);
  EXPECT_EQ(guest_->WaitExit(), 0);
  guest_.reset();
}

INSTANTIATE_TEST_SUITE_P(Trees, GuestExec, BothWays(), NameOfWay);

}  // namespace
}  // namespace caisson::guest
