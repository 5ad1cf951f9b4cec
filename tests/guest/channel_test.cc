// The channel: framing, authority, limits, and the states that the whole sandbox can be in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <stdexcept>

#include "guest_process.h"

namespace caisson::guest {
namespace {

class GuestChannel : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    guest_ = GuestProcess::Start({}, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  HttpResponse Raw(std::string_view bytes) {
    HttpStream stream(guest_->socket_path());
    stream.Send(bytes);
    return stream.ReadResponse();
  }
  std::unique_ptr<GuestProcess> guest_;
};

TEST_F(GuestChannel, TokensAndPaths) {
  EXPECT_EQ(guest_->Call("GET", kPathHello, {}, {{"Authorization", "x"}}).status, 200);
  EXPECT_EQ(guest_->Call("GET", kPathHealth, {}, {{"Authorization", "Bearer wrong"}}).Code(),
            "unauthenticated");
  EXPECT_EQ(guest_->Call("POST", kPathExecs, "{}", {{"Authorization", "Bearer token-of-the-tesT"}})
                .status,
            401);
  EXPECT_EQ(guest_->Call("GET", "/v1/nothing").Code(), "not_found");
  EXPECT_EQ(guest_->Call("DELETE", kPathHealth).Code(), "method_not_allowed");
  EXPECT_EQ(guest_->Call("POST", kPathExecs, "{broken").Code(), "invalid_json");
}

TEST_F(GuestChannel, KeepAlive) {
  HttpStream stream(guest_->socket_path());
  for (int i = 0; i < 50; i++) {
    stream.SendRequest("GET", kPathHealth);
    EXPECT_EQ(stream.ReadResponse().status, 200);
    stream.SendRequest("POST", kPathExecs, R"({"argv":["/bin/true"]})");
    EXPECT_EQ(stream.ReadResponse().status, 200);
    // Answered before its body was read; the stream goes on.
    stream.SendRequest("POST", "/v1/nothing", std::string(1000, 'b'));
    EXPECT_EQ(stream.ReadResponse().status, 404);
  }
}

TEST_F(GuestChannel, SmugglingIsRefused) {
  const std::string tail = "Authorization: Bearer token-of-the-test\r\n";
  for (const std::string& head :
       {std::string("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
        std::string("Content-Length: 2\r\nContent-Length: 2\r\n"),
        std::string("Transfer-Encoding: gzip, chunked\r\n"), std::string("X: a\r\n b\r\n"),
        std::string("X: a\rb\r\n"), std::string("Content-Length: +2\r\n"),
        std::string("Content-Length : 2\r\n")}) {
    HttpStream stream(guest_->socket_path());
    stream.Send("POST /v1/execs HTTP/1.1\r\n" + head + tail + "\r\n{}");
    auto answer = stream.ReadResponse();
    EXPECT_EQ(answer.Code(), "malformed_request") << head;
    EXPECT_TRUE(stream.AtEnd()) << head;
  }
  EXPECT_EQ(Raw("GET /v1/health HTTP/1.1\r\nX: " + std::string(17'000, 'x') + "\r\n\r\n").Code(),
            "header_too_large");
  EXPECT_EQ(Raw("GET /v1/health HTTP/1.1\nX: y\n\n").Code(), "malformed_request");
  EXPECT_EQ(Raw("POST /v1/execs HTTP/1.1\r\n" + tail + "Content-Length: 99999999\r\n\r\n").Code(),
            "body_too_large");
  EXPECT_EQ(guest_->Health(), "ok");
}

TEST_F(GuestChannel, Fences) {
  auto with = [&](const char* fence, std::string_view method = "POST") {
    return guest_->Call(method, method == "GET" ? kPathHealth : kPathExecs,
                        method == "GET" ? "" : R"({"argv":["true"]})", {{"Caisson-Fence", fence}});
  };
  EXPECT_EQ(with("5").status, 200);
  EXPECT_EQ(with("4").Code(), "stale_owner");
  EXPECT_EQ(with("5").status, 200);
  EXPECT_EQ(with("18446744073709551615").status, 200);
  EXPECT_EQ(with("5").Code(), "stale_owner");
  EXPECT_EQ(with("x").Code(), "invalid_argument");
  EXPECT_EQ(with("0", "GET").status, 200);
  EXPECT_EQ(guest_->Call("POST", kPathExecs, R"({"argv":["true"]})").Code(), "stale_owner");
}

TEST_F(GuestChannel, AtMost64Streams) {
  std::vector<std::unique_ptr<HttpStream>> streams;
  for (size_t i = 0; i < kMaxConnections; i++) {
    streams.push_back(std::make_unique<HttpStream>(guest_->socket_path()));
    streams.back()->SendRequest("GET", kPathHealth);
    EXPECT_EQ(streams.back()->ReadResponse().status, 200);
  }
  EXPECT_EQ(HttpStream(guest_->socket_path()).ReadResponse().Code(), "overloaded");
  streams.clear();
  EXPECT_TRUE(WaitFor([&] { return guest_->Call("GET", kPathHealth).status == 200; }));
}

TEST_F(GuestChannel, SizesAndTimes) {
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("GET", kPathHello);
  stream.ReadResponse();
  std::printf("RSS %lld KiB\n", static_cast<long long>(guest_->RssKiB()));
  stream.SendRequest("POST", kPathExecs, R"({"argv":["/bin/true"]})");
  stream.ReadResponse();
  int64_t start = NowMs();
  for (int i = 0; i < 200; i++) {
    stream.SendRequest("POST", kPathExecs, R"({"argv":["/bin/true"]})");
    stream.ReadResponse();
  }
  std::printf("exec /bin/true %.2f ms\n", static_cast<double>(NowMs() - start) / 200);
}

TEST_F(GuestChannel, ALateRemovalMakesTheSandboxUnclean) {
  guest_->Shell(
      "mkdir t; cd t; i=0; while [ $i -lt 30 ]; do mkdir d$i; (cd d$i; j=0; while [ $j -lt 400 ]; "
      "do : > f$j; j=$((j+1)); done); i=$((i+1)); done");
  auto late = guest_->Call("POST", kPathFileRemove, R"({"path":"t","recursive":true})",
                           {{"Caisson-Deadline-Ms", "1"}});
  if (late.status == 200) GTEST_SKIP() << "removed in a millisecond";
  EXPECT_EQ(late.Code(), "outcome_unknown");
  EXPECT_NE(guest_->Health(), "ok");
  EXPECT_EQ(guest_->Call("POST", kPathExecs, R"({"argv":["true"]})").Code(), "sandbox_unclean");
  EXPECT_EQ(guest_->Call("GET", kPathHello).status, 200);
}

TEST_F(GuestChannel, ADeadSpawnerMakesTheSandboxUnclean) {
  std::vector<pid_t> spawners;  // it names itself a moment after it starts
  ASSERT_TRUE(WaitFor([&] { return (spawners = guest_->Children("caisson-spawn")).size() == 1; }));
  ::kill(spawners[0], SIGKILL);
  EXPECT_TRUE(WaitFor([&] { return guest_->Health() != "ok"; }));
  EXPECT_EQ(guest_->Call("POST", kPathExecs, R"({"argv":["true"]})").Code(), "sandbox_unclean");
}

TEST_F(GuestChannel, ADeadSupervisorIsALostCommand) {
  ExecStream stream(guest_->socket_path(), "POST", kPathExecs, R"({"command":"sleep 30"})");
  stream.Next();
  std::vector<pid_t> supervisors;
  ASSERT_TRUE(
      WaitFor([&] { return (supervisors = guest_->Children("caisson-super")).size() == 1; }));
  ::kill(supervisors[0], SIGKILL);
  ExecResult result;
  Collect(stream, result);
  EXPECT_EQ(result.Reason(), "lost");
  EXPECT_TRUE(result.exit.at("code").is_null());
  EXPECT_NE(guest_->Health(), "ok");
}

TEST_F(GuestChannel, ADeadWorkerFailsAlone) {
  guest_->Shell("head -c 2000000000 /dev/zero > big");
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("POST", kPathGrep, R"({"path":"/","pattern":"no such text anywhere"})");
  std::vector<pid_t> workers;
  ASSERT_TRUE(WaitFor([&] { return !(workers = guest_->Children("caisson-work")).empty(); }));
  ::kill(workers[0], SIGKILL);
  EXPECT_EQ(stream.ReadResponse().Code(), "io_error");
  EXPECT_EQ(guest_->Health(), "ok");
}

// What a guest that does not start says; empty with `reason` where guests cannot be tried.
std::string StartFailure(const GuestProcess::Options& options, std::string& reason) {
  try {
    if (GuestProcess::Start(options, reason)) ADD_FAILURE() << "it started";
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(GuestStart, FailuresAreTold) {
  for (const char* config :
       {"{}", "nonsense",
        R"({"user":{"uid":1000,"gid":1000,"name":"u","home":"/"},"work_dir":"/no/such"})"}) {
    GuestProcess::Options options;
    options.config = config;
    std::string reason;
    std::string failure = StartFailure(options, reason);
    if (!reason.empty()) GTEST_SKIP() << reason;
    EXPECT_THAT(failure, testing::HasSubstr("did not start: ")) << config;
    EXPECT_GT(failure.size(), 40U);
  }
}

TEST(GuestStart, ACgroupThatCannotServeIsRefused) {
  GuestProcess::Options no_cgroup;
  no_cgroup.cgroup = "/tmp";
  GuestProcess::Options of_root;
  of_root.tracking = Tracking::kCgroup;
  of_root.unprivileged = true;
  for (const auto& [options, why] :
       {std::pair(no_cgroup, "cgroup.events"), std::pair(of_root, "write to the directory")}) {
    std::string reason;
    std::string failure = StartFailure(options, reason);
    if (!reason.empty()) GTEST_SKIP() << reason;
    EXPECT_THAT(failure, testing::HasSubstr("the given cgroup directory cannot be used: "));
    EXPECT_THAT(failure, testing::HasSubstr(why));
  }
}

TEST(GuestStart, WaitsForTheSpawnerItIsGiven) {
  GuestProcess::Options options;
  options.dead_spawner = true;
  std::string reason;
  std::string failure = StartFailure(options, reason);
  if (!reason.empty()) GTEST_SKIP() << reason;
  EXPECT_THAT(failure, testing::HasSubstr("the spawner ended before it was there"));
}

TEST(GuestUnprivileged, WorksAsTheUserItself) {
  GuestProcess::Options options;
  options.unprivileged = true;
  std::string reason;
  auto guest = GuestProcess::Start(options, reason);
  if (!guest) GTEST_SKIP() << reason;
  EXPECT_FALSE(guest->Call("GET", kPathHello).Json().at("uid_separation").as_bool());
  EXPECT_EQ(guest->Shell("id -u; sleep 30 & (setsid sleep 31 &) ; sleep 32", 300).Reason(),
            "timeout");
  EXPECT_EQ(guest->Call("PUT", "/v1/files/content?path=f", "x").status, 200);
  EXPECT_EQ(guest->Call("GET", "/v1/files/content?path=%2Fetc%2Fshadow").Code(),
            "file_access_denied");
  EXPECT_EQ(guest->Health(), "ok");
}

}  // namespace
}  // namespace caisson::guest
