// What goes into commands and comes out of them: output, input, terminals, readers that come late
// or leave. Case numbers are those of the reported faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
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
  // At most 16 small reads a millisecond, and then one without any.
  auto milliseconds = static_cast<size_t>(result.exit.at("duration_ms").as_int64());
  EXPECT_LT(result.records.size(), 1000 + 16 * (milliseconds / 2 + 2));
  EXPECT_LT(result.records.size(), 100'000U);
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

TEST_P(GuestExec, SilenceIsKeptAlive) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs,
                    R"({"command":"sleep 10.5; echo x"})");
  ExecResult result;
  Collect(stream, result);
  ASSERT_GE(result.records.size(), 4U);
  EXPECT_EQ(result.records[1].type, RecordType::kKeepAlive);
}

INSTANTIATE_TEST_SUITE_P(Trees, GuestExec, BothWays(), NameOfWay);

}  // namespace
}  // namespace caisson::guest
