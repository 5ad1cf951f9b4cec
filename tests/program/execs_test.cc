// Commands over HTTP that live beside their callers: left, found again, written to, ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "guest/text.h"
#include "streaming_fixture.h"

namespace caisson::program_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The messages of a stream, and of those of `event` the texts together.
std::string DataOf(const std::string& stream, const std::string& event) {
  std::string data;
  std::string mark = "event: " + event + "\ndata: ";
  for (size_t at = 0; (at = stream.find(mark, at)) != stream.npos;) {
    at += mark.size();
    json::object message = json::ParseObject(stream.substr(at, stream.find('\n', at) - at)).value();
    data += message.contains("data") ? std::string(message["data"].as_string())
                                     : json::Serialize(message);
  }
  return data;
}

class ExecsTest : public StreamingTest {
 public:
  void SetUp() override {
    StreamingTest::SetUp();
    if (!IsSkipped()) box_ = "/v1/sandboxes/" + MakeSandbox();
  }
  Server::Answer Start(const std::string& body, const std::string& accept = "application/json") {
    return server_->Call("POST", box_ + "/execs", body, accept);
  }
  json::object Show(const std::string& id) {
    return server_->Call("GET", box_ + "/execs/" + id).Json();
  }
  std::string Follow(const std::string& id, uint64_t after = 0) {
    return server_
        ->Call("GET", fmt::format("{}/execs/{}/stream?after={}", box_, id, after), "",
               "text/event-stream")
        .body;
  }
  bool Ended(const std::string& id) {
    return Eventually([&] { return Show(id)["state"] == "ended"; });
  }
  std::string Processes() { return Exec(box_.substr(14), "ps -eo args").Text("stdout"); }

  std::string box_;
};

TEST_F(ExecsTest, OutlivesTheStreamThatStartedIt) {
  auto left = Run([](ExecsTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(
        Opened opened,
        co_await test.Open(
            "POST", test.box_ + "/execs",
            R"({"id":"job","command":"echo begun; read x; echo got $x","interactive":true})"));
    co_return co_await test.ReadUntil(*opened.client, "begun", test.Soon());
  }(*this));
  ASSERT_TRUE(left.has_value()) << left.error().ToString();
  EXPECT_EQ(Show("job")["state"], "running");
  // The first reader has what came before; a second one, from where the first had stopped, the
  // rest.
  EXPECT_EQ(server_->Call("POST", box_ + "/execs/job/stdin?eof=1", "word\n").status, 200);
  ASSERT_TRUE(Ended("job"));
  EXPECT_EQ(DataOf(Follow("job"), "stdout"), "begun\ngot word\n");
  EXPECT_EQ(DataOf(Follow("job", 6), "stdout"), "got word\n");
  EXPECT_THAT(DataOf(Follow("job", 15), "exit"), HasSubstr(R"("code":0)"));
  EXPECT_EQ(server_->Call("GET", box_ + "/execs/job/stream?after=16").Text("code"),
            "invalid_argument");
  EXPECT_EQ(server_->Call("POST", box_ + "/execs/job/stdin", "more").Text("code"), "exec_ended");
  EXPECT_EQ(Start(R"({"id":"job","command":"true"})").Text("code"), "exec_exists");
}

// The other kind is its caller's: it ends with the connection, whatever it had started.
TEST_F(ExecsTest, WhatIsRunForACallerEndsWithIt) {
  auto left = Run([](ExecsTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(
        Opened opened,
        co_await test.Open("POST", test.box_ + "/exec",
                           R"({"command":"setsid sleep 9871 & echo begun; sleep 9872"})"));
    co_return co_await test.ReadUntil(*opened.client, "begun", test.Soon());
  }(*this));
  ASSERT_TRUE(left.has_value()) << left.error().ToString();
  EXPECT_TRUE(Eventually([&] { return Processes().find("sleep 987") == std::string::npos; }));
}

TEST_F(ExecsTest, DeletingTakesTheWholeTree) {
  ASSERT_EQ(
      Start(R"({"id":"tree","command":"trap '' TERM; (setsid sleep 9873 &); sleep 9874 & wait"})")
          .status,
      201);
  ASSERT_TRUE(Eventually([&] { return Processes().find("sleep 9873") != std::string::npos; }));
  EXPECT_EQ(server_->Call("POST", box_ + "/execs/tree/signal", R"({"signal":"TERM"})").status, 200);
  EXPECT_EQ(Show("tree")["state"], "running");
  EXPECT_EQ(server_->Call("DELETE", box_ + "/execs/tree").status, 200);
  EXPECT_THAT(Processes(), Not(HasSubstr("sleep 987")));
  EXPECT_EQ(server_->Call("GET", box_ + "/execs/tree").Text("code"), "exec_not_found");
  EXPECT_EQ(server_->Call("DELETE", box_ + "/execs/tree").Text("code"), "exec_not_found");
}

TEST_F(ExecsTest, SignalsAndTimeouts) {
  Start(
      R"({"id":"trap","command":"trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done"})");
  ASSERT_TRUE(Eventually([&] { return Show("trap")["offset"].to_number<int>() == 3; }));
  server_->Call("POST", box_ + "/execs/trap/signal", R"({"signal":"INT"})");
  ASSERT_TRUE(Ended("trap"));
  EXPECT_EQ(Show("trap")["exit"].at("code"), 3);
  Start(R"({"id":"late","command":"sleep 9875","timeout_ms":200})");
  ASSERT_TRUE(Ended("late"));
  EXPECT_EQ(Show("late")["exit"].at("reason"), "timeout");
  Start(R"({"id":"killed","argv":["sleep","9876"]})");
  server_->Call("POST", box_ + "/execs/killed/signal", R"({"signal":"KILL","scope":"tree"})");
  ASSERT_TRUE(Ended("killed"));
  EXPECT_EQ(Show("killed")["exit"].at("reason"), "killed");
  EXPECT_EQ(
      server_->Call("POST", box_ + "/execs/killed/signal", R"({"signal":"WAT"})").Text("code"),
      "invalid_argument");
}

TEST_F(ExecsTest, Terminals) {
  Start(
      R"({"id":"tty","command":"stty size; read x; stty size; tty >/dev/null && echo $TERM","pty":{"rows":20,"cols":70}})");
  ASSERT_TRUE(Eventually([&] { return Show("tty")["offset"].to_number<int>() >= 7; }));
  EXPECT_EQ(server_->Call("POST", box_ + "/execs/tty/resize", R"({"rows":30,"cols":90})").status,
            200);
  server_->Call("POST", box_ + "/execs/tty/stdin", "go\n");
  ASSERT_TRUE(Ended("tty"));
  EXPECT_EQ(DataOf(Follow("tty"), "stdout"), "20 70\r\ngo\r\n30 90\r\nxterm-256color\r\n");
}

TEST_F(ExecsTest, WrongRequestsAreNamed) {
  EXPECT_THAT(Start(R"({"command":"cat","stdin":"x"})").Text("detail"), HasSubstr("interactive"));
  EXPECT_EQ(Start(R"({"command":"cat","pty":{"lines":3}})").Text("code"), "invalid_argument");
  EXPECT_EQ(Start(R"({"argv":["no-such-program"]})").Text("code"), "command_not_found");
  EXPECT_EQ(server_->Call("GET", box_ + "/execs/none").Text("code"), "exec_not_found");
  EXPECT_EQ(server_->Call("GET", box_ + "/execs/none/stream").Text("code"), "exec_not_found");
  EXPECT_EQ(server_->Call("GET", "/v1/sandboxes/nonsense/execs").Text("code"), "invalid_argument");
  // What names an exec is one component, whatever it looks like.
  EXPECT_EQ(server_->Call("GET", box_ + "/execs/..%2f..%2fv1%2fhealth").status, 404);
}

}  // namespace
}  // namespace caisson::program_test
