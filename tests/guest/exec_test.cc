// Commands, with both ways to track their trees. Case numbers are those of the reported faults that
// each kind of test stands for.
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

#include "guest_process.h"

namespace caisson::guest {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace json = boost::json;

class GuestExec : public testing::TestWithParam<Tracking> {
 protected:
  void SetUp() override { StartGuest({}); }
  void StartGuest(GuestProcess::Options options) {
    guest_.reset();
    options.tracking = GetParam();
    std::string reason;
    guest_ = GuestProcess::Start(options, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (guest_ && !unclean_expected_) EXPECT_EQ(guest_->Health(), "ok");
  }

  // How many processes in the sandbox run `name`.
  int Count(const std::string& name) {
    ExecResult result =
        guest_->Shell("n=0; for d in /proc/[0-9]*; do [ \"$(cat $d/comm 2>/dev/null)\" = " + name +
                      " ] && n=$((n+1)); done; echo $n");
    return std::atoi(result.out.c_str());
  }
  HttpResponse Signal(const std::string& id, const std::string& name, const std::string& scope) {
    return guest_->Call("POST", "/v1/execs/" + id + "/signal",
                        json::serialize(json::object{{"signal", name}, {"scope", scope}}));
  }
  json::value State(const std::string& id) { return guest_->Call("GET", "/v1/execs/" + id).Json(); }
  // Where the output of a command has stopped by itself: two looks, a tenth of a second apart,
  // agree. For upper bounds only: on a busy host it may look before the command goes on, and then
  // sees less than there will be, never more.
  int64_t OffsetWhenStill(const std::string& id) {
    int64_t offset = -1;
    EXPECT_TRUE(WaitFor([&] {
      int64_t now = State(id).at("offset").as_int64();
      bool still = now == offset;
      offset = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return still;
    }));
    return offset;
  }

  std::unique_ptr<GuestProcess> guest_;
  bool unclean_expected_ = false;
};

TEST_P(GuestExec, SaysHowItTracks) {
  auto hello = guest_->Call("GET", kPathHello, {}, {{"Authorization", "none"}}).Json();
  std::string features = json::serialize(hello.at("features"));
  EXPECT_THAT(features,
              HasSubstr(GetParam() == Tracking::kCgroup ? "exec.cgroup2" : "exec.supervisor"));
  EXPECT_TRUE(hello.at("pid1").as_bool());
  EXPECT_TRUE(hello.at("uid_separation").as_bool());
}

TEST_P(GuestExec, RecordsAreInOrder) {
  ExecResult result = guest_->Shell("echo out; echo err >&2; exit 7");
  ASSERT_EQ(result.status, 200);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.ExitCode(), 7);
  EXPECT_EQ(result.Reason(), "exited");
  ASSERT_GE(result.records.size(), 4U);
  EXPECT_EQ(result.records.front().type, RecordType::kStarted);
  EXPECT_EQ(result.records.back().type, RecordType::kExit);
  EXPECT_EQ(result.records.back().offset, 8U);
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

TEST_P(GuestExec, Case03_OutputBeforeTimeoutIsKept) {
  ExecResult result =
      guest_->Shell("for i in 1 2 3 4 5; do echo $i; sleep 0.2; done; sleep 10", 500);
  EXPECT_EQ(result.Reason(), "timeout");
  EXPECT_EQ(result.out, "1\n2\n3\n");
}

TEST_P(GuestExec, Case04_StdinIsAtItsEnd) {
  for (const char* command : {"cat", "grep x; [ $? = 1 ]", "read a; [ $? = 1 ]"}) {
    ExecResult result = guest_->Shell(command);
    EXPECT_EQ(result.ExitCode(), 0) << command;
    EXPECT_LT(result.elapsed_ms, 1000) << command;
  }
}

TEST_P(GuestExec, Case06_BytesArriveAsWritten) {
  ExecResult result = guest_->Shell(
      "awk 'BEGIN{for(i=0;i<100001;i++) printf \"☕é\"}' | dd obs=4093 2>/dev/null;"
      " printf '\\342\\230'; sleep 0.1; printf '\\225'");
  std::string expected;
  for (int i = 0; i < 100001; i++) expected += "☕é";
  expected += "☕";
  EXPECT_EQ(result.out.size(), expected.size());
  EXPECT_TRUE(result.out == expected);
}

TEST_P(GuestExec, Case07_AnyByteIsKept) {
  ExecResult result = guest_->Shell("printf '\\377\\376ok\\000end\\200'");
  EXPECT_EQ(result.out, std::string("\377\376ok\0end\200", 9));
  EXPECT_EQ(result.ExitCode(), 0);
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

TEST_P(GuestExec, Case12_BackgroundAndAttach) {
  auto created = guest_->Call(
      "POST", kPathExecs,
      R"({"id":"bg","background":true,"command":"i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo $i; sleep 0.02; done; exit 9"})");
  EXPECT_EQ(created.status, 201);
  EXPECT_EQ(created.Json().at("state"), "running");
  ASSERT_TRUE(WaitFor([&] { return State("bg").at("offset").as_int64() > 20; }));
  ExecStream attached(guest_->socket_path(), "GET", "/v1/execs/bg/stream?after=4", {});
  ExecResult result;
  Collect(attached, result);
  std::string expected;
  for (int i = 3; i <= 40; i++) expected += std::to_string(i) + "\n";
  EXPECT_EQ(result.out, expected);
  EXPECT_EQ(result.ExitCode(), 9);
  EXPECT_EQ(result.records.front().type, RecordType::kStarted);
  EXPECT_EQ(State("bg").at("exit").at("code").as_int64(), 9);
  ExecStream late(guest_->socket_path(), "GET", "/v1/execs/bg/stream", {});
  ExecResult again;
  Collect(late, again);
  EXPECT_EQ(again.out, "1\n2\n" + expected);
  EXPECT_EQ(guest_->Call("GET", "/v1/execs/bg/stream?after=100000").Code(), "invalid_argument");
  EXPECT_EQ(guest_->Call("POST", kPathExecs, R"({"id":"bg","command":"true"})").Code(),
            "exec_exists");
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

TEST_P(GuestExec, InputThatIsInThePipeIsAccepted) {
  guest_->Call("POST", kPathExecs,
               R"({"id":"line","background":true,"command":"read x; echo $x","stdin":"pipe"})");
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("POST", "/v1/execs/line/stdin?eof=1", "", {{"Transfer-Encoding", "chunked"}});
  stream.Send("5\r\nword\n\r\n");
  // The command has read its line and ended before the body does.
  ASSERT_TRUE(WaitFor([&] { return State("line").at("state") == "ended"; }));
  stream.Send("0\r\n\r\n");
  HttpResponse answer = stream.ReadResponse();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.Json().at("accepted_bytes").as_int64(), 5);
}

// What the result does not show is read by offset, while the command runs and after it.
TEST_P(GuestExec, OutputIsKeptInFiles) {
  auto output = [&](const std::string& id, const std::string& query = "") {
    return guest_->Call("GET", "/v1/execs/" + id + "/output?" + query);
  };
  ExecResult result =
      guest_->Exec({{"id", "long"},
                    {"command", "for i in $(seq 20000); do echo line $i; echo err $i >&2; done"},
                    {"head_bytes", 1000},
                    {"tail_bytes", 1000},
                    {"keep_bytes", 10'000'000}});
  EXPECT_EQ(result.exit.at("truncated").at("stdout"), true);
  int64_t total = result.exit.at("stdout_bytes").as_int64();
  EXPECT_EQ(result.exit.at("kept").at("stdout").as_int64(), total);
  EXPECT_EQ(result.exit.at("kept").at("stderr"), result.exit.at("stderr_bytes"));
  std::string expected_out, expected_err;
  for (int i = 1; i <= 20000; i++) {
    expected_out += "line " + std::to_string(i) + "\n";
    expected_err += "err " + std::to_string(i) + "\n";
  }
  EXPECT_TRUE(output("long", "limit=1000000").body == expected_out);
  EXPECT_TRUE(output("long", "limit=1000000&stream=stderr").body == expected_err);
  HttpResponse part = output("long", "offset=100000&limit=10");
  EXPECT_EQ(part.body, expected_out.substr(100'000, 10));
  json::value meta = json::parse(part.headers.at("caisson-meta"));
  EXPECT_EQ(meta.at("kept_bytes").as_int64(), total);
  EXPECT_EQ(meta.at("total_bytes").as_int64(), total);
  EXPECT_EQ(meta.at("size_bytes").as_int64(), 10);
  EXPECT_EQ(output("long").body.size(), 65536u);
  EXPECT_EQ(output("long", "offset=" + std::to_string(total)).body, "");
  EXPECT_EQ(output("long", "offset=" + std::to_string(total + 1)).Code(), "offset_past_end");
  EXPECT_EQ(output("long", "stream=both").Code(), "invalid_argument");

  guest_->Exec(
      {{"id", "short"}, {"command", "printf 1234567890; printf abc >&2"}, {"keep_bytes", 5}});
  EXPECT_EQ(output("short").body, "12345");
  guest_->Exec({{"id", "none"}, {"command", "echo"}});
  EXPECT_EQ(output("none").Code(), "conflict");

  guest_->Call("POST", kPathExecs,
               R"({"id":"runs","background":true,"keep_bytes":1000,)"
               R"("command":"echo early; read x; echo late","stdin":"pipe"})");
  EXPECT_TRUE(WaitFor([&] { return output("runs").body == "early\n"; }));
  guest_->Call("POST", "/v1/execs/runs/stdin?eof=1", "\n");
  EXPECT_TRUE(WaitFor([&] { return output("runs", "offset=6").body == "late\n"; }));
  guest_->Call("DELETE", "/v1/execs/runs");
  EXPECT_EQ(output("runs").Code(), "exec_not_found");
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

TEST_P(GuestExec, Case16_SlowReaderSlowsTheCommand) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"id":"flood","command":"yes | head -c 100000000"})");
  int64_t before = guest_->RssKiB();
  int64_t offset = OffsetWhenStill("flood");
  EXPECT_LT(offset, 8'000'000);
  if (kMeasures) EXPECT_LT(guest_->RssKiB() - before, 4096);
  EXPECT_EQ(guest_->Shell("echo meanwhile").out, "meanwhile\n");
  ExecResult result;
  uint64_t total = 0;
  while (auto record = stream.Next()) {
    if (record->type == RecordType::kStdout) {
      EXPECT_EQ(record->offset, total);
      total += record->payload.size();
    }
    if (record->type == RecordType::kExit) result.exit = json::parse(record->payload).as_object();
  }
  EXPECT_EQ(total, 100'000'000U);
  EXPECT_EQ(result.Reason(), "exited");
  if (kMeasures) EXPECT_LT(guest_->RssKiB() - before, 4096);
}

TEST_P(GuestExec, Case16_OneLongLine) {
  ExecResult result = guest_->Shell("head -c 50000000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(result.out.size(), 50'000'000U);
  EXPECT_EQ(result.out.find_first_not_of('x'), std::string::npos);
}

TEST_P(GuestExec, Case16_LimitsOfOutput) {
  ExecResult result =
      guest_->Exec({{"command", "i=0; while [ $i -lt 20000 ]; do echo line$i; i=$((i+1)); done"},
                    {"head_bytes", 1000},
                    {"tail_bytes", 500}});
  EXPECT_EQ(result.out.size(), 1500U);
  EXPECT_TRUE(result.out.starts_with("line0\nline1\n"));
  EXPECT_TRUE(result.out.ends_with("line19999\n"));
  EXPECT_TRUE(result.exit.at("truncated").at("stdout").as_bool());
  EXPECT_FALSE(result.exit.at("truncated").at("stderr").as_bool());
  uint64_t total = static_cast<uint64_t>(result.exit.at("stdout_bytes").as_int64());
  uint64_t position = 0;
  for (const ExecRecord& record : result.records) {
    EXPECT_EQ(record.offset, position);
    if (record.type == RecordType::kGap) {
      position += static_cast<uint64_t>(json::parse(record.payload).at("skipped_bytes").as_int64());
      EXPECT_EQ(json::parse(record.payload).at("reason"), "output_limit");
    } else if (record.type == RecordType::kStdout) {
      position += record.payload.size();
    }
  }
  EXPECT_EQ(position, total);
  ExecResult killed =
      guest_->Exec({{"command", "yes"}, {"head_bytes", 1000}, {"on_output_limit", "kill"}});
  EXPECT_EQ(killed.Reason(), "output_limit");
  EXPECT_EQ(killed.out.size(), 1000U);
  EXPECT_EQ(Count("yes"), 0);
}

TEST_P(GuestExec, Check53_TinyWritesAreCoalesced) {
  ExecResult result = guest_->Shell("dd if=/dev/zero bs=1 count=200000 2>/dev/null", 60'000);
  EXPECT_EQ(result.out.size(), 200'000U);
  EXPECT_LT(result.records.size(), 100'000U);
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

TEST_P(GuestExec, StdinIsStreamed) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"id":"in","stdin":"pipe","command":"wc -c; echo bye"})");
  stream.Next();
  std::string data(3'000'000, 'd');
  auto written = guest_->Call("POST", "/v1/execs/in/stdin", data);
  EXPECT_EQ(written.Json().at("accepted_bytes").as_int64(), 3'000'000);
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/in/stdin?eof=1", "12345").status, 200);
  ExecResult result;
  Collect(stream, result);
  EXPECT_EQ(result.out, "3000005\nbye\n");
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/in/stdin", "x").Code(), "exec_ended");
}

TEST_P(GuestExec, StdinOfACommandThatIgnoresIt) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"id":"deaf","stdin":"pipe","command":"sleep 0.3; exec <&-; sleep 0.3"})");
  stream.Next();
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/deaf/stdin", std::string(1'000'000, 'x')).Code(),
            "exec_ended");
  ExecResult result;
  Collect(stream, result);
  EXPECT_EQ(result.ExitCode(), 0);
}

TEST_P(GuestExec, Terminals) {
  ExecStream stream(
      guest_->socket_path(), "POST", kPathExecs,
      R"({"id":"t","pty":{"rows":11,"cols":22},"command":"stty size; test -t 0 && echo $TERM; read x; stty size; cat; echo end"})");
  std::string seen;
  auto until = [&](std::string_view text) {
    while (seen.find(text) == std::string::npos) {
      auto record = stream.Next();
      if (!record) return false;
      seen += record->payload;
    }
    return true;
  };
  ASSERT_TRUE(until("11 22\r\nxterm-256color\r\n"));
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/t/resize", R"({"rows":33,"cols":44})").status, 200);
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/t/stdin", "go\n").status, 200);
  ASSERT_TRUE(until("33 44\r\n"));
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/t/stdin?eof=1", "line\n").status, 200);
  ASSERT_TRUE(until("end\r\n"));
}

TEST_P(GuestExec, DisconnectPolicies) {
  for (const char* policy : {"kill", "continue"}) {
    std::string id = std::string("d-") + policy;
    ExecStream stream(
        guest_->socket_path(), "POST", kPathExecs,
        json::serialize(json::object{
            {"id", id}, {"command", "sleep 1; echo late"}, {"on_disconnect", policy}}));
    stream.Next();
    stream.Close();
    ASSERT_TRUE(WaitFor([&] { return State(id).at("state") == "ended"; }));
    EXPECT_EQ(State(id).at("exit").at("reason"),
              std::string_view(policy) == "kill" ? "killed" : "exited");
  }
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

TEST_P(GuestExec, LateReadersSeeAGap) {
  guest_->Exec({{"id", "long"}, {"command", "head -c 1000000 /dev/zero | tr '\\0' x"}});
  ExecStream late(guest_->socket_path(), "GET", "/v1/execs/long/stream?after=1000", {});
  ExecResult result;
  Collect(late, result);
  ASSERT_GE(result.records.size(), 4U);
  EXPECT_EQ(result.records[0].type, RecordType::kStarted);
  EXPECT_EQ(result.records[1].type, RecordType::kGap);
  EXPECT_EQ(result.records[1].offset, 1000U);
  auto gap = json::parse(result.records[1].payload);
  EXPECT_EQ(gap.at("reason"), "not_kept");
  EXPECT_EQ(gap.at("skipped_bytes").as_int64(), static_cast<int64_t>(999'000 - kReplayBytes));
  EXPECT_EQ(result.out.size(), kReplayBytes);
  EXPECT_EQ(State("long").at("first_kept_offset").as_int64(),
            static_cast<int64_t>(1'000'000 - kReplayBytes));
}

TEST_P(GuestExec, TheSlowestReaderSetsThePace) {
  ExecStream first(
      guest_->socket_path(), "POST", kPathExecs,
      R"({"id":"two","command":"until [ -e go ]; do sleep 0.01; done; yes | head -c 20000000"})");
  first.Next();
  ExecStream second(guest_->socket_path(), "GET", "/v1/execs/two/stream", {});
  second.Next();
  // Only now, with both attached: what is written before would not be kept for the second.
  EXPECT_EQ(guest_->Call("PUT", "/v1/files/content?path=go", "").status, 200);
  ExecResult a;
  std::thread reader([&] { Collect(first, a); });
  int64_t offset = OffsetWhenStill("two");
  EXPECT_LT(offset, 8'000'000);
  ExecResult b;
  Collect(second, b);
  reader.join();
  EXPECT_EQ(a.out.size(), 20'000'000U);
  EXPECT_TRUE(a.out == b.out);
}

TEST_P(GuestExec, OneWriterOfStdinAtATime) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"id":"w","stdin":"pipe","command":"sleep 30"})");
  stream.Next();
  HttpStream blocked(guest_->socket_path());
  blocked.SendRequest("POST", "/v1/execs/w/stdin", std::string(100'000, 'x'));
  EXPECT_TRUE(
      WaitFor([&] { return guest_->Call("POST", "/v1/execs/w/stdin", "y").Code() == "conflict"; }));
  EXPECT_EQ(guest_->Call("DELETE", "/v1/execs/w").status, 200);
  EXPECT_EQ(blocked.ReadResponse().Code(), "exec_ended");
  ExecStream none(guest_->socket_path(), "POST", kPathExecs, R"({"id":"n","command":"sleep 0.2"})");
  none.Next();
  EXPECT_EQ(guest_->Call("POST", "/v1/execs/n/stdin", "y").Code(), "conflict");
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

TEST_P(GuestExec, SilenceIsKeptAlive) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"command":"sleep 10.5; echo x"})");
  ExecResult result;
  Collect(stream, result);
  ASSERT_GE(result.records.size(), 4U);
  EXPECT_EQ(result.records[1].type, RecordType::kKeepAlive);
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

INSTANTIATE_TEST_SUITE_P(Trees, GuestExec,
                         testing::Values(Tracking::kCgroup, Tracking::kSupervisor),
                         [](const auto& info) {
                           return info.param == Tracking::kCgroup ? "Cgroup2" : "Supervisor";
                         });

}  // namespace
}  // namespace caisson::guest
