// caisson serve and run, with the scripted model, through crashes and restarts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cli/runtime_dir.h"
#include "fake_model.h"
#include "server_fixture.h"

namespace caisson::program_test {
namespace {

// Whoever asks for the end gets the receipt, however many ask at once, and whether they name the
// generation that they know or not.
TEST_F(ServerTest, ManyEndOneSandbox) {
  for (int round = 0; round < 10; round++) {
    json::object made = server_->Call("POST", "/v1/sandboxes", "{}").Json();
    std::string id(made["id"].as_string());
    std::string known = fmt::format("?generation={}", made["generation"].to_number<int>());
    std::vector<std::string> answers(4);
    std::vector<std::thread> threads;
    for (std::string& answer : answers) {
      threads.emplace_back([&, this] {
        std::string query = &answer < &answers[2] ? known : "";
        auto ended = server_->TryCall("DELETE", "/v1/sandboxes/" + id + query);
        answer = ended ? std::to_string(ended->status) + ended->Text("status") : "no answer";
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& answer : answers) EXPECT_EQ(answer, "200released");
    EXPECT_EQ(server_->Call("DELETE", "/v1/sandboxes/" + id + known).Text("status"), "released");
  }
}

TEST_F(ServerTest, SandboxesOverHttp) {
  std::string id = MakeSandbox();
  Server::Answer result = Exec(id, "echo hi; echo no >&2; exit 3");
  EXPECT_EQ(result.status, 200) << result.body;
  EXPECT_EQ(result.Text("stdout"), "hi\n");
  EXPECT_EQ(result.Text("stderr"), "no\n");
  EXPECT_EQ(result.Json()["code"].as_int64(), 3);
  EXPECT_EQ(Exec(id, "cat", R"("stdin":"from stdin")").Text("stdout"), "from stdin");
  EXPECT_EQ(Exec(id, "sleep 100", R"("timeout_ms":100)").Text("reason"), "timeout");
  Server::Answer bytes = Exec(id, R"(printf '\377\376ok\000end\200')");
  EXPECT_EQ(bytes.Text("stdout_base64"), "//5vawBlbmSA") << bytes.body;
  std::string stream = server_
                           ->Call("POST", "/v1/sandboxes/" + id + "/exec",
                                  R"({"command":"echo a"})", "text/event-stream")
                           .body;
  EXPECT_NE(stream.find("event: stdout\ndata: {\"offset\":0,\"data\":\"a\\n\"}"), std::string::npos)
      << stream;
  EXPECT_NE(stream.find("event: exit"), std::string::npos);
  EXPECT_NE(server_->Call("GET", "/metrics")
                .body.find(R"(caisson_sandboxes_created_total{backend="local",outcome="ready"} 1)"),
            std::string::npos);
  Server::Answer gone = server_->Call("DELETE", "/v1/sandboxes/" + id);
  EXPECT_EQ(gone.Text("status"), "released") << gone.body;
  EXPECT_EQ(server_->Call("DELETE", "/v1/sandboxes/" + id).Text("status"), "released")
      << "the receipt, again";
  EXPECT_EQ(Exec(id, "true").Text("code"), "sandbox_lost");
}

TEST_F(ServerTest, Case41_ASandboxThatDiesIsLostByName) {
  std::string id = MakeSandbox();
  std::ifstream file(server_->runtime_dir() + "/sandboxes/" + id + ".json");
  std::stringstream text;
  text << file.rdbuf();
  auto pid = static_cast<pid_t>(json::ParseObject(text.str()).value()["pid"].as_int64());
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] { return ::kill(pid, 0) != 0; }));
  EXPECT_EQ(Exec(id, "true").Text("code"), "sandbox_lost");
  EXPECT_EQ(server_->Call("GET", "/v1/sandboxes/" + id).Text("status"), "lost");
  EXPECT_EQ(Exec(id, "true").Text("code"), "sandbox_lost");
}

TEST_F(ServerTest, FilesOverHttp) {
  std::string id = MakeSandbox();
  std::string files = "/v1/sandboxes/" + id + "/files";
  std::string large(20'000'000, 'z');
  EXPECT_EQ(server_->Call("PUT", files + "/content?path=dir/large&parents=1", large).status, 200);
  EXPECT_EQ(server_->Call("GET", files + "/content?path=dir/large").body, large);
  EXPECT_EQ(server_->Call("PUT", files + "/content?path=a.txt", "one\ntwo\n").status, 200);
  EXPECT_EQ(
      server_->Call("POST", files + "/edit", R"({"path":"a.txt","old":"two","new":"$& 2"})").status,
      200);
  EXPECT_EQ(server_->Call("GET", files + "/lines?path=a.txt&offset=1").body, "$& 2");
  EXPECT_EQ(server_->Call("GET", files + "/stat?path=a.txt").Text("type"), "file");
  EXPECT_NE(server_->Call("GET", files + "/list?path=.").body.find("\"dir\""), std::string::npos);
  std::string search = "/v1/sandboxes/" + id + "/search";
  EXPECT_NE(server_->Call("POST", search + "/glob", R"({"path":".","pattern":"*.txt"})")
                .body.find("a.txt"),
            std::string::npos);
  EXPECT_NE(server_->Call("POST", search + "/grep", R"({"path":".","pattern":"$& 2"})")
                .body.find("\"line\":2"),
            std::string::npos);
  EXPECT_EQ(server_->Call("GET", files + "/content?path=nope").Text("code"), "file_not_found");
  EXPECT_EQ(server_->Call("GET", files + "/content?path=a.txt&nonsense=1").Text("code"),
            "invalid_argument");
  Exec(id, "ln -s /etc/shadow link; mkfifo pipe");
  EXPECT_NE(server_->Call("GET", files + "/content?path=link").status, 200)
      << "there is no shadow file inside";
  EXPECT_EQ(server_->Call("GET", files + "/content?path=pipe").Text("code"), "not_a_regular_file");
}

TEST_F(ServerTest, AnAgentDoesTheDemoTask) {
  Service model({"demo-model"});
  std::string status = server_->data_dir() + "/status";
  std::ofstream(status) << "Package: small\nStatus: install ok installed\nInstalled-Size: "
                           "10\nDescription: a small one\n\n"
                           "Package: large\nStatus: install ok installed\nInstalled-Size: "
                           "2048\nDescription: a large one\n\n"
                           "Package: removed\nStatus: deinstall ok config-files\nInstalled-Size: "
                           "9999\nDescription: gone\n\n";
  std::string report = server_->data_dir() + "/report.md";
  Finished run = RunCaisson({"run", "which ten?", "--base-url", model.first_line(), "--file",
                             status, "--get", "report.md=" + report, "--server", server_->url()});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  EXPECT_NE(run.out.find("I am a script"), std::string::npos);
  EXPECT_NE(run.out.find("-> execute"), std::string::npos);
  EXPECT_NE(run.out.find("[usage: 4 model calls"), std::string::npos);
  std::stringstream text;
  text << std::ifstream(report).rdbuf();
  EXPECT_NE(text.str().find("| large | 2.0 MiB | a large one |\n| small |"), std::string::npos)
      << text.str();
  EXPECT_EQ(text.str().find("removed"), std::string::npos);
  // What was written for the run is visible.
  EXPECT_NE(RunCaisson({"agents", "list", "--server", server_->url()}).out.find("run-"),
            std::string::npos);
  json::value sessions =
      json::Parse(RunCaisson({"sessions", "list", "--json", "--server", server_->url()}).out)
          .value();
  std::string session(sessions.as_array().at(0).as_object()["id"].as_string());
  EXPECT_NE(RunCaisson({"events", session, "--server", server_->url()}).out.find("[run done]"),
            std::string::npos);
  EXPECT_EQ(model.Stop(SIGTERM), 0);
}

TEST_F(ServerTest, ProviderFaultsEndTheRunWithANameAndLeaveTheSessionUsable) {
  std::string session = MakeSession("http://127.0.0.1:1/v1");
  std::string stream = Send(session).body;
  EXPECT_NE(stream.find("\"code\":\"model_unavailable\""), std::string::npos) << stream;
  EXPECT_EQ(RunStatus(session), "failed");
  EXPECT_NE(Send(session).body.find("run_state"), std::string::npos) << "the session is not usable";
  server_->Call(
      "POST", "/v1/providers",
      R"({"name":"k","protocol":"openai","model":"m","api_key_env":"CAISSON_TEST_NO_SUCH_KEY"})");
  server_->Call("POST", "/v1/agents", R"({"name":"k","provider":"k"})");
  std::string keyless = server_->Call("POST", "/v1/sessions", R"({"agent":"k"})").Text("id");
  EXPECT_NE(Send(keyless).body.find("CAISSON_TEST_NO_SUCH_KEY"), std::string::npos);
}

// No number of tries makes a conversation shorter: whichever provider says so, the run ends at
// once, and the call before it that was worth a second try is the only one that is repeated.
TEST_F(ServerTest, Case59_ALongerConversationThanTheModelAcceptsEndsTheRun) {
  struct Case {
    const char* protocol;
    std::string refusal;
    std::string answer;  // to what is short enough
  };
  for (const Case& c : {
           Case{"openai",
                R"({"error":{"message":"This model's maximum context length is 8192 tokens. )"
                R"(However, your messages resulted in 9001 tokens. Please reduce the length of )"
                R"(the messages.","type":"invalid_request_error","param":"messages",)"
                R"("code":"context_length_exceeded"}})",
                Piece({{"content", "hi"}}) + std::string(kAnswerEnd)},
           Case{"anthropic",
                R"({"type":"error","error":{"type":"invalid_request_error","message":)"
                R"("prompt is too long: 209001 tokens > 200000 maximum"}})",
                R"(event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}

event: message_stop
data: {"type":"message_stop"}

)"},
       }) {
    std::atomic<bool> accepts = false;
    FakeModel model([&](int call, http::ServerRequest&, http::ServerResponse& response) {
      if (accepts) return response.Send(200, {{"Content-Type", "text/event-stream"}}, c.answer);
      http::Headers json{{"Content-Type", "application/json"}};
      if (call == 0) return response.Send(529, std::move(json), R"({"error":{"message":"busy"}})");
      return response.Send(400, std::move(json), c.refusal);
    });
    server_->Call("POST", "/v1/providers",
                  json::Serialize(json::object{{"name", c.protocol},
                                               {"protocol", c.protocol},
                                               {"base_url", model.url()},
                                               {"model", "m"},
                                               {"max_retries", 5}}));
    server_->Call("POST", "/v1/agents",
                  json::Serialize(json::object{{"name", c.protocol}, {"provider", c.protocol}}));
    std::string session =
        server_->Call("POST", "/v1/sessions", json::Serialize(json::object{{"agent", c.protocol}}))
            .Text("id");
    std::string events = Send(session).body;
    EXPECT_NE(events.find(R"("code":"context_overflow")"), std::string::npos) << events;
    EXPECT_NE(events.find(R"("model_calls":2,)"), std::string::npos) << events;
    json::object run = NewestRun(session);
    EXPECT_EQ(run["status"], "failed");
    EXPECT_EQ(run["error"].as_object()["code"], "context_overflow");
    EXPECT_EQ(server_->Call("GET", "/v1/sessions/" + session).Text("status"), "idle");
    Send(session);
    EXPECT_EQ(RunStatus(session), "failed");
    EXPECT_EQ(model.calls(), 3) << "nothing is asked while nobody asks";
    accepts = true;
    Send(session);
    EXPECT_EQ(RunStatus(session), "done");
  }
}

TEST_F(ServerTest, CancelReachesTheRun) {
  // A model that accepts and never answers: a listening socket that nobody serves.
  Service model({"demo-model"});
  std::string session = MakeSession(model.first_line());
  Server::Answer sent = Send(session, "application/json");
  ASSERT_EQ(sent.status, 202) << sent.body;
  std::string run(sent.Json()["run"].as_object()["id"].as_string());
  Server::Answer cancelled = server_->Call("POST", "/v1/runs/" + run + "/cancel");
  EXPECT_LE(cancelled.status, 202) << cancelled.body;
  EXPECT_TRUE(Eventually([&] { return RunStatus(session) == "cancelled"; })) << RunStatus(session);
  EXPECT_EQ(server_->Call("GET", "/v1/sessions/" + session).Text("status"), "idle");
}

TEST_F(ServerTest, ACrashLeavesAnInterruptedRunAUsableSessionAndTheSandbox) {
  std::string id = MakeSandbox();
  Exec(id, "echo kept > file");
  Service model({"demo-model"});
  std::string session = MakeSession(model.first_line());
  ASSERT_EQ(Send(session, "application/json").status, 202);
  ASSERT_TRUE(Eventually([&] { return RunStatus(session) == "active"; }));
  EXPECT_EQ(server_->service().Stop(SIGKILL), 137);
  server_->Start();
  EXPECT_TRUE(Eventually([&] { return RunStatus(session) == "interrupted"; }))
      << RunStatus(session);
  EXPECT_EQ(server_->Call("GET", "/v1/sessions/" + session).Text("status"), "idle");
  EXPECT_EQ(Send(session, "application/json").status, 202);
  EXPECT_EQ(Exec(id, "cat file").Text("stdout"), "kept\n") << "the sandbox was not adopted";
}

// At each durable step of a sandbox's life the server dies; the next one leaves nothing undecided.
TEST_F(ServerTest, ACrashAtEachStepOfASandboxIsCleanedUp) {
  for (const char* step :
       {"sandbox.requested", "sandbox.acquired", "sandbox.releasing", "sandbox.terminated"}) {
    EXPECT_EQ(server_->service().Stop(SIGTERM), 0);
    server_->Start({fmt::format("CAISSON_FAILPOINT={}=kill", step)});
    if (TryMakeAndDelete()) GTEST_SKIP() << "built without failpoints";
    EXPECT_EQ(server_->service().Wait(), 137) << step;
    server_->Start();
    json::object list = server_->Call("GET", "/v1/sandboxes").Json();
    for (const json::value& item : list["items"].as_array()) {
      std::string status(item.as_object().at("status").as_string());
      EXPECT_TRUE(status == "failed" || status == "released" || status == "lost")
          << step << ": " << status;
    }
  }
}

TEST_F(ServerTest, ASecondServerAndATakenPortAreRefusedByName) {
  Finished second =
      RunCaisson({"serve", "--listen", "127.0.0.1:0", "--data-dir", server_->data_dir()});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find("data_dir_locked"), std::string::npos) << second.err;
  std::string port = server_->url().substr(server_->url().rfind(':') + 1);
  std::string other = server_->data_dir() + "/other";
  Finished taken = RunCaisson({"serve", "--listen", "127.0.0.1:" + port, "--data-dir", other});
  EXPECT_EQ(taken.code, 1);
  EXPECT_NE(taken.err.find("address_in_use"), std::string::npos) << taken.err;
  Finished open = RunCaisson({"serve", "--listen", "0.0.0.0:0", "--data-dir", other});
  EXPECT_NE(open.err.find("--insecure"), std::string::npos) << open.err;
  Finished unusable =
      RunCaisson({"serve", "--listen", "127.0.0.1:0", "--data-dir", "/proc/caisson"});
  EXPECT_NE(unusable.err.find("data_dir_unusable"), std::string::npos) << unusable.err;
}

TEST_F(ServerTest, TheRuntimeDirectoryIsOnesOwnAndGoneAtTheEnd) {
  EXPECT_TRUE(std::filesystem::exists(server_->runtime_dir() + "/sandboxes"));
  EXPECT_EQ(server_->service().Stop(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(server_->runtime_dir()));
  // By default it lies where others may have made something of its name.
  std::filesystem::create_directory(server_->runtime_dir());
  ASSERT_EQ(::chmod(server_->runtime_dir().c_str(), 0755), 0);
  Finished foreign = RunCaisson({"serve", "--listen", "127.0.0.1:0", "--data-dir",
                                 server_->data_dir(), "--runtime-dir", server_->runtime_dir()});
  EXPECT_NE(foreign.err.find("--runtime-dir"), std::string::npos) << foreign.err;
  std::filesystem::remove(server_->runtime_dir());

  std::string usual = cli::RuntimeDirOf(server_->data_dir()).value();
  Service other({"serve", "--listen", "127.0.0.1:0", "--data-dir", server_->data_dir()});
  EXPECT_NE(other.first_line().find("http://"), std::string::npos) << other.error_output();
  EXPECT_TRUE(std::filesystem::exists(usual + "/sandboxes")) << usual;
  EXPECT_EQ(other.Stop(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(usual)) << usual;
}

TEST_F(ServerTest, TermDrains) { EXPECT_EQ(server_->service().Stop(SIGTERM), 0); }

}  // namespace
}  // namespace caisson::program_test
