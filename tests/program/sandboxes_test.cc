// Sandboxes over a server: made and explained on the command line, what ends one by itself, what
// keeps it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/syscall.h"
#include "streaming_fixture.h"

namespace caisson::program_test {
namespace {

using ::testing::HasSubstr;

class SandboxesTest : public StreamingTest {
 public:
  std::string Make(const std::string& spec) {
    Server::Answer made = server_->Call("POST", "/v1/sandboxes", spec);
    EXPECT_EQ(made.status, 201) << made.body;
    return made.Text("id");
  }
  // "ready", or the status and why.
  std::string StatusOf(const std::string& id) {
    Server::Answer shown = server_->Call("GET", "/v1/sandboxes/" + id);
    std::string reason = shown.Text("status_reason");
    return shown.Text("status") + (reason.empty() ? "" : ": " + reason);
  }
};

TEST_F(SandboxesTest, AnIdleSandboxEndsAndOneWithACommandDoesNot) {
  std::string idle = Make(R"({"idle_ms":1000})");
  std::string busy = Make(R"({"idle_ms":1000})");
  std::string watched = Make(R"({"idle_ms":1000})");
  std::string usual = Make("{}");
  Exec(idle, "sleep 300 > /dev/null 2>&1 &");  // left behind: nobody's command
  server_->Call("POST", "/v1/sandboxes/" + busy + "/execs",
                R"({"id":"work","command":"sleep 300"})");
  auto told = Run([&](SandboxesTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(Opened opened, co_await test.Open("GET", "/v1/sandboxes/" + watched +
                                                                   "/files/watch?path=."));
    // Watching is no activity: the stream breaks off when the sandbox ends.
    co_return co_await test.ReadUntil(*opened.client, "never told", test.Soon());
  }(*this));
  EXPECT_FALSE(told.has_value());
  EXPECT_TRUE(Eventually([&] { return StatusOf(watched) == "released: idle"; }));
  EXPECT_TRUE(Eventually([&] { return StatusOf(idle) == "released: idle"; })) << StatusOf(idle);
  EXPECT_EQ(Exec(idle, "true").Text("code"), "sandbox_lost");
  EXPECT_EQ(StatusOf(busy), "ready");
  EXPECT_EQ(StatusOf(usual), "ready");
  server_->Call("DELETE", "/v1/sandboxes/" + busy + "/execs/work");
  EXPECT_TRUE(Eventually([&] { return StatusOf(busy) == "released: idle"; })) << StatusOf(busy);
}

TEST_F(SandboxesTest, TheCommandLineMakesExplainsAndEndsSandboxes) {
  auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "sandboxes");
    arguments.insert(arguments.end(), {"--server", server_->url()});
    return RunCaisson(std::move(arguments));
  };
  Finished allowed = run({"explain"});
  EXPECT_EQ(allowed.code, 0) << allowed.err;
  EXPECT_THAT(allowed.out, HasSubstr("allowed        true"));
  Finished refused = run({"explain", R"({"network":"unrestricted"})"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.out, HasSubstr("egress_not_enforced"));
  EXPECT_THAT(refused.err, HasSubstr("would not make"));
  Finished wrong = run({"explain", R"({"netwrk":"closed"})"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("netwrk"));
  EXPECT_THAT(run({"list"}).out, testing::Not(HasSubstr("ready")));

  Finished made = run({"create", R"({"idle_ms":3600000})", "--json"});
  EXPECT_EQ(made.code, 0) << made.err;
  json::object box = json::ParseObject(made.out).value();
  EXPECT_EQ(box["status"], "ready");
  Finished ended = run({"delete", std::string(box["id"].as_string())});
  EXPECT_THAT(ended.out, HasSubstr("released"));
}

TEST_F(SandboxesTest, WhatHasNoRowIsRemovedWhileTheServerRuns) {
  std::string kept = Make("{}");
  // A living process that the files of a sandbox without a row name, as after the loss of a ledger.
  Service orphan("/bin/sh", {"-c", "echo up; exec sleep 1000"}, {});
  auto file = [&](const std::string& id) {
    return server_->runtime_dir() + "/sandboxes/" + id + ".json";
  };
  json::object instance = json::ParseObject(ReadWholeFile(file(kept)).value()).value();
  std::string stat = ReadWholeFile(fmt::format("/proc/{}/stat", orphan.pid())).value();
  std::vector<std::string> fields;
  std::istringstream words(stat.substr(stat.rfind(')') + 2));
  for (std::string word; words >> word;) fields.push_back(word);
  instance["pid"] = orphan.pid();
  instance["start_time"] = std::stoll(fields.at(19));  // field 22 of proc(5)
  instance["cgroups"] = json::array();
  std::string other = kept;
  other.back() = other.back() == '0' ? '1' : '0';
  std::ofstream(file(other)) << json::Serialize(instance);
  EXPECT_TRUE(Eventually([&] { return ::access(file(other).c_str(), F_OK) != 0; }));
  EXPECT_EQ(orphan.Wait(), 137);
  EXPECT_EQ(StatusOf(kept), "ready");
  EXPECT_EQ(Exec(kept, "echo alive").Text("stdout"), "alive\n");
}

TEST_F(SandboxesTest, ASessionReleasesItsSandboxAndStays) {
  std::string session = MakeSession("http://127.0.0.1:9");  // its model is never asked
  std::string path = "/v1/sessions/" + session + "/sandboxes:release";
  auto release = [&](const std::string& body = "") { return server_->Call("POST", path, body); };
  EXPECT_EQ(release().Text("status"), "absent");
  std::string spec = fmt::format(R"({{"session_id":"{}"}})", session);
  std::string id = Make(spec);
  server_->Call("POST", "/v1/sandboxes/" + id + "/execs", R"({"id":"work","command":"sleep 300"})");
  EXPECT_EQ(release().Text("status"), "busy");
  EXPECT_EQ(StatusOf(id), "ready");
  EXPECT_EQ(release(R"({"idle_only":false})").Text("status"), "complete");
  EXPECT_EQ(StatusOf(id), "released: released");
  // The receipt stays what it is, also for another server.
  EXPECT_EQ(server_->service().Stop(SIGKILL), 137);
  server_->Start();
  json::object again = release().Json();
  EXPECT_EQ(again["status"], "complete");
  EXPECT_EQ(std::string(again["sandbox"].at("id").as_string()), id);
  std::string next = Make(spec);
  EXPECT_NE(next, id);
  Finished idle = RunCaisson({"sessions", "release", session, "--server", server_->url()});
  EXPECT_THAT(idle.out, HasSubstr("complete")) << idle.err;
  EXPECT_THAT(StatusOf(next), HasSubstr("released"));
  EXPECT_EQ(server_->Call("GET", "/v1/sessions/" + session).status, 200);
  // A session that is unknown, or another's.
  path.replace(path.find(session) + session.size() - 4, 4, "0000");
  EXPECT_EQ(release().status, 404);
}

TEST_F(SandboxesTest, NobodyIsInASandboxThatIsDead) {
  std::string session = MakeSession("http://127.0.0.1:9");
  auto kill = [&](const std::string& id) {
    std::string file = server_->runtime_dir() + "/sandboxes/" + id + ".json";
    json::object instance = json::ParseObject(ReadWholeFile(file).value()).value();
    auto pid = static_cast<pid_t>(instance.at("pid").to_number<int64_t>());
    EXPECT_EQ(::kill(pid, SIGKILL), 0);
  };
  std::string id = Make(fmt::format(R"({{"session_id":"{}"}})", session));
  kill(id);
  std::string path = "/v1/sessions/" + session + "/sandboxes:release";
  EXPECT_EQ(server_->Call("POST", path).Text("status"), "complete");
  std::string idle = Make(R"({"idle_ms":1000})");
  kill(idle);
  EXPECT_TRUE(Eventually([&] { return StatusOf(idle) == "released: idle"; })) << StatusOf(idle);
}

TEST_F(SandboxesTest, WhatOneUsesIsShownBesideItsLimits) {
  std::string id = Make(R"({"resources":{"disk_bytes":67108864,"pids":100}})");
  auto usage = [&](const std::string& field) {
    json::object all = server_->Call("GET", "/v1/sandboxes/" + id + "/usage").Json();
    return all.at(field).is_null() ? -1 : all.at(field).to_number<int64_t>();
  };
  int64_t disk = usage("disk_bytes");
  EXPECT_EQ(usage("pids"), 0);
  EXPECT_EQ(usage("pids_limit"), 100);
  EXPECT_EQ(usage("disk_limit_bytes"), 67108864);
  Exec(id, "head -c 10000000 /dev/zero > file; sleep 300 > /dev/null 2>&1 &");
  Exec(id, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
  EXPECT_EQ(usage("pids"), 1);
  EXPECT_GE(usage("disk_bytes"), disk + 10'000'000);
  EXPECT_GE(usage("memory_bytes"), 10'000'000);  // what commands write counts as theirs
  EXPECT_GE(usage("memory_peak_bytes"), usage("memory_bytes") - 1'000'000);
  EXPECT_GT(usage("cpu_ms"), 0);
  Finished shown = RunCaisson({"sandboxes", "usage", id, "--server", server_->url()});
  EXPECT_THAT(shown.out, HasSubstr("disk_bytes"));
  server_->Call("DELETE", "/v1/sandboxes/" + id);
  EXPECT_EQ(server_->Call("GET", "/v1/sandboxes/" + id + "/usage").Text("code"), "sandbox_lost");
}

TEST_F(SandboxesTest, ACallThatLastsIsActivity) {
  std::string id = Make(R"({"idle_ms":1000})");
  std::string other = Make(R"({"idle_ms":1000})");
  auto told = Run([&](SandboxesTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(
        Opened opened,
        co_await test.Open("POST", "/v1/sandboxes/" + id + "/exec",
                           R"({"command":"until [ -e go ]; do sleep 0.1; done; echo still"})"));
    EXPECT_TRUE(Eventually([&] { return test.StatusOf(other) == "released: idle"; }));
    EXPECT_EQ(test.StatusOf(id), "ready");
    test.server_->Call("PUT", "/v1/sandboxes/" + id + "/files/content?path=go");
    co_return co_await test.ReadUntil(*opened.client, "still", test.Soon());
  }(*this));
  EXPECT_TRUE(told.has_value()) << told.error().ToString();
}

TEST_F(SandboxesTest, ARestartKeepsTheIdleTimeOfTheSpec) {
  std::string id = Make(R"({"idle_ms":6000})");
  EXPECT_EQ(server_->service().Stop(SIGKILL), 137);
  server_->Start();
  EXPECT_EQ(StatusOf(id), "ready");
  EXPECT_TRUE(Eventually([&] { return StatusOf(id) == "released: idle"; })) << StatusOf(id);
}

TEST_F(SandboxesTest, NoCommandIsLongerThanTheSpecAllows) {
  std::string id = Make(R"({"max_exec_ms":1500})");
  Server::Answer over = Exec(id, "true", R"("timeout_ms":1501)");
  EXPECT_EQ(over.status, 400) << over.body;
  EXPECT_THAT(over.body, HasSubstr("max_exec_ms is 1500"));
  EXPECT_EQ(Exec(id, "true", R"("timeout_ms":1500)").Text("reason"), "exited");
  EXPECT_EQ(Exec(id, "sleep 300").Text("reason"), "timeout");
  std::string execs = "/v1/sandboxes/" + id + "/execs";
  server_->Call("POST", execs, R"({"id":"long","command":"sleep 300"})");
  EXPECT_TRUE(Eventually([&] {
    return server_->Call("GET", execs + "/long").body.find("\"timeout\"") != std::string::npos;
  }));
}

}  // namespace
}  // namespace caisson::program_test
