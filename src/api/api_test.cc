// The API over a real loopback server and a real store; runs are worked on by the test itself.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "api/problem.h"
#include "api/router.h"
#include "http/client.h"
#include "json/json.h"
#include "net/loop.h"
#include "store/sqlite/sqlite_store.h"

namespace caisson::api {
namespace {

struct Answer {
  int status = 0;
  http::Headers headers;
  std::string body;
  json::object Json() const { return json::ParseObject(body).value_or(json::object()); }
  std::string Code() const {
    json::object object = Json();
    const json::value* code = object.if_contains("code");
    return code == nullptr ? "" : std::string(code->as_string());
  }
};

class ApiTest : public ::testing::Test {
 public:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/api-" + random_.Hex(8);
    std::filesystem::create_directories(dir_);
    store_ = store::sqlite::OpenSqliteStore({dir_ + "/caisson.db", false}, clock_, random_).value();
    services_.emplace(Services{clock_, random_, *store_});
    server_.emplace(
        loop_, net::ListenTcp(loop_, "127.0.0.1", 0).value(), http::ServerLimits(),
        [this](http::ServerRequest& request, http::ServerResponse& response) {
          return router_.Handle(*services_, request, response);
        },
        [](const Error& error) { return ProblemBody(error, ""); });
    server_->Start();
  }
  void TearDown() override {
    Run([](ApiTest& test) -> Task<Result<void>> {
      co_await test.server_->Drain(Deadline::After(test.clock_, Millis(30'000)));
      co_return Result<void>();
    }(*this));
    server_.reset();
    store_.reset();
    std::filesystem::remove_all(dir_);
  }
  template <typename T>
  T Run(Task<T> task) {
    return net::RunUntilDone(loop_, std::move(task));
  }
  Until Soon() { return Until(Deadline::After(clock_, Millis(30'000))); }

  Task<Result<Answer>> Ask(http::RequestHead head, std::string body) {
    CAISSON_CO_ASSIGN(auto stream,
                      co_await net::DialTcp(loop_, "127.0.0.1", server_->port(), Soon()));
    http::ClientConnection client(std::move(stream));
    if (!head.headers.Find("host")) head.headers.Add("Host", "localhost");
    CAISSON_CO_ASSIGN(http::ResponseHead answer,
                      co_await client.Send(std::move(head), body, Soon()));
    CAISSON_CO_ASSIGN(std::string text, co_await client.ReadWholeBody(16 << 20, Soon()));
    co_return Answer{answer.status, std::move(answer.headers), std::move(text)};
  }
  Answer Call(std::string method, std::string target, std::string body = "",
              http::Headers headers = {}) {
    return Run(Ask({std::move(method), std::move(target), std::move(headers)}, std::move(body)))
        .value();
  }
  void MakeAgent() {
    ASSERT_EQ(Call("POST", "/v1/agents", R"({"name":"a","provider":"p"})").status, 201);
  }
  std::string MakeSession() {
    Answer answer = Call("POST", "/v1/sessions", R"({"agent":"a"})");
    EXPECT_EQ(answer.status, 201) << answer.body;
    return std::string(answer.Json()["id"].as_string());
  }

  SystemClock clock_;
  SystemRandom random_;
  net::Loop loop_{clock_};
  std::string dir_;
  std::unique_ptr<store::Store> store_;
  std::optional<Services> services_;
  Router router_;
  std::optional<http::Server> server_;
};

TEST_F(ApiTest, AnswersHealthReadyAndCapabilities) {
  EXPECT_EQ(Call("GET", "/health").status, 200);
  EXPECT_EQ(Call("GET", "/ready").status, 200);
  EXPECT_EQ(Call("GET", "/v1/capabilities").Json()["store"].as_string(), "sqlite");
  services_->draining = true;
  Answer draining = Call("GET", "/ready");
  EXPECT_EQ(draining.status, 503);
  EXPECT_EQ(draining.Code(), "shutting_down");
  EXPECT_TRUE(draining.headers.Find("retry-after").has_value());
}

TEST_F(ApiTest, ErrorsHaveOneShape) {
  Answer missing = Call("GET", "/nope", "", {{"X-Request-Id", "my-id"}});
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.headers.Find("content-type"), kProblemMedia);
  EXPECT_EQ(missing.headers.Find("x-request-id"), "my-id");
  json::object problem = missing.Json();
  for (const char* field :
       {"type", "title", "status", "code", "detail", "retryable", "request_id"}) {
    EXPECT_TRUE(problem.contains(field)) << field;
  }
  Answer method = Call("DELETE", "/v1/sessions");
  EXPECT_EQ(method.status, 405);
  EXPECT_NE(std::string(method.Json()["detail"].as_string()).find("POST, GET"), std::string::npos)
      << method.body;
  EXPECT_EQ(Call("GET", "/health/").status, 404);
  EXPECT_EQ(Call("GET", "/v1/sessions//").status, 404);
}

TEST_F(ApiTest, RefusesBadBodiesByName) {
  MakeAgent();
  EXPECT_EQ(Call("POST", "/v1/sessions", "{").Code(), "invalid_json");
  EXPECT_EQ(Call("POST", "/v1/sessions", "[]").Code(), "invalid_json");
  EXPECT_EQ(Call("POST", "/v1/sessions", "{}", {{"Content-Type", "text/plain"}}).Code(),
            "unsupported_media_type");
  Answer wrong = Call("POST", "/v1/sessions", R"({"agent":5})");
  EXPECT_EQ(wrong.Code(), "invalid_argument");
  EXPECT_NE(wrong.body.find("\\\"agent\\\""), std::string::npos) << wrong.body;
  EXPECT_EQ(Call("POST", "/v1/sessions", R"({"agent":"a","tilte":"x"})").Code(),
            "invalid_argument");
  EXPECT_EQ(Call("POST", "/v1/sessions", R"({"agent":"unknown"})").Code(), "not_found");
  EXPECT_EQ(Call("POST", "/v1/sessions", std::string(5 << 20, ' ')).Code(), "body_too_large");
  EXPECT_EQ(Call("GET", "/v1/sessions/nope").Code(), "invalid_argument");
  EXPECT_EQ(Call("GET", "/v1/sessions?limit=0").Code(), "invalid_argument");
  EXPECT_EQ(Call("GET", "/v1/sessions?limit=x").Code(), "invalid_argument");
}

TEST_F(ApiTest, ServesOnlyItsOwnNameWithoutAuthentication) {
  EXPECT_EQ(Call("GET", "/health", "", {{"Host", "evil.example"}}).status, 403);
  EXPECT_EQ(Call("GET", "/health", "", {{"Host", "localhost.evil.example"}}).status, 403);
  EXPECT_EQ(Call("GET", "/health", "", {{"Host", "127.0.0.1:8080"}}).status, 200);
  EXPECT_EQ(Call("GET", "/health", "", {{"Host", "[::1]:8080"}}).status, 200);
  EXPECT_EQ(Call("GET", "/health", "", {{"Origin", "https://evil.example"}}).status, 403);
  EXPECT_EQ(Call("GET", "/health", "", {{"Origin", "null"}}).status, 403);
  EXPECT_EQ(Call("GET", "/health", "", {{"Origin", "http://localhost:3000"}}).status, 200);
}

TEST_F(ApiTest, DefinitionsAreCreatedReplacedAndDeletedByRevision) {
  Answer created = Call("POST", "/v1/providers",
                        R"({"name":"p","protocol":"openai","base_url":"http://127.0.0.1:1/v1/"})");
  EXPECT_EQ(created.status, 201) << created.body;
  EXPECT_EQ(created.headers.Find("etag"), "\"1\"");
  EXPECT_EQ(Call("POST", "/v1/providers", R"({"name":"p","protocol":"openai"})").Code(),
            "already_exists");
  EXPECT_EQ(Call("PUT", "/v1/providers/p", R"({"protocol":"openai"})").Code(),
            "precondition_failed");
  EXPECT_EQ(
      Call("PUT", "/v1/providers/p", R"({"protocol":"anthropic"})", {{"If-Match", "\"1\""}}).status,
      200);
  EXPECT_EQ(Call("GET", "/v1/providers/p").Json()["revision"].as_int64(), 2);
  EXPECT_EQ(Call("DELETE", "/v1/providers/p").Code(), "invalid_argument");
  EXPECT_EQ(Call("DELETE", "/v1/providers/p", "", {{"If-Match", "\"1\""}}).Code(),
            "precondition_failed");
  EXPECT_EQ(Call("DELETE", "/v1/providers/p", "", {{"If-Match", "\"2\""}}).status, 204);
  EXPECT_EQ(Call("GET", "/v1/providers/p").status, 404);
  for (const char* bad :
       {R"({"name":"../x","protocol":"openai"})", R"({"name":"x","protocol":"nope"})",
        R"({"name":"x","protocol":"openai","base_url":"http://u:p@h/"})",
        R"({"name":"x","protocol":"openai","base_url":"file:///etc/passwd"})",
        R"({"name":"x","protocol":"openai","api_key_env":"A B"})",
        R"({"name":"x","protocol":"openai","api_key":"sk-1"})"}) {
    EXPECT_EQ(Call("POST", "/v1/providers", bad).Code(), "invalid_argument") << bad;
  }
}

TEST_F(ApiTest, AnAgentWithUnbuiltFeaturesIsStoredAndRefusedAtSessionStart) {
  EXPECT_EQ(Call("POST", "/v1/agents",
                 R"({"name":"a","provider":"p","subagents":[{"name":"x"}],"mcp":{}})")
                .status,
            201);
  Answer refused = Call("POST", "/v1/sessions", R"({"agent":"a"})");
  EXPECT_EQ(refused.Code(), "feature_not_built");
  EXPECT_NE(refused.body.find("subagents"), std::string::npos);
  EXPECT_EQ(refused.body.find("mcp\\\""), std::string::npos) << "an empty field asks for nothing";
}

TEST_F(ApiTest, ScopesDoNotSeeEachOther) {
  MakeAgent();
  std::string id = MakeSession();
  http::Headers other{{"X-Caisson-Scope-Tenant", "other"}};
  EXPECT_EQ(Call("GET", "/v1/sessions/" + id, "", other).status, 404);
  EXPECT_EQ(Call("GET", "/v1/sessions/" + id + "/stream", "", other).status, 404);
  EXPECT_EQ(Call("GET", "/v1/agents/a", "", other).status, 404);
  EXPECT_EQ(Call("GET", "/v1/sessions", "", other).Json()["items"].as_array().size(), 0u);
  EXPECT_EQ(Call("GET", "/v1/sessions", "", {{"X-Caisson-Scope-Tenant", "a b"}}).Code(),
            "invalid_argument");
}

TEST_F(ApiTest, AMessageStartsARunOnce) {
  MakeAgent();
  std::string session = MakeSession();
  std::string path = "/v1/sessions/" + session + "/messages";
  EXPECT_EQ(Call("POST", path, "{}").Code(), "invalid_argument");
  EXPECT_EQ(Call("POST", path, R"({"content":[{"type":"image","text":"x"}]})").Code(),
            "invalid_argument");
  EXPECT_EQ(Call("POST", path, R"({"content":"x","multitask":"enqueue"})").Code(),
            "feature_not_built");
  Answer first = Call("POST", path, R"({"content":"hello"})", {{"Idempotency-Key", "k"}});
  EXPECT_EQ(first.status, 202) << first.body;
  Answer again = Call("POST", path, R"({ "content" : "hello" })", {{"Idempotency-Key", "k"}});
  EXPECT_EQ(again.status, 202);
  EXPECT_TRUE(again.Json()["replayed"].as_bool());
  EXPECT_EQ(again.Json()["run"].as_object()["id"], first.Json()["run"].as_object()["id"]);
  EXPECT_EQ(Call("POST", path, R"({"content":"other"})", {{"Idempotency-Key", "k"}}).Code(),
            "idempotency_mismatch");
  EXPECT_EQ(Call("POST", path, R"({"content":"other"})").Code(), "session_busy");
  std::string run(first.Json()["run"].as_object()["id"].as_string());
  Answer cancelled = Call("POST", "/v1/runs/" + run + "/cancel");
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_EQ(cancelled.Json()["status"].as_string(), "cancelled");
  EXPECT_EQ(Call("POST", path, R"({"content":"other"})").status, 202)
      << "the session is usable again";
}

// Splits a stream into its messages' ids.
std::vector<uint64_t> Ids(const std::string& sse) {
  std::vector<uint64_t> ids;
  for (size_t at = sse.find("id: "); at != std::string::npos; at = sse.find("\nid: ", at + 1)) {
    ids.push_back(std::stoull(sse.substr(sse.find_first_of("0123456789", at))));
  }
  return ids;
}

class StreamTest : public ApiTest {
 public:
  void SetUp() override {
    ApiTest::SetUp();
    MakeAgent();
    session_ = MakeSession();
    Answer sent = Call("POST", "/v1/sessions/" + session_ + "/messages", R"({"content":"hello"})");
    run_ = std::string(sent.Json()["run"].as_object()["id"].as_string());
  }
  // Does the run's work: `tokens` deltas, then the end.
  Task<Result<void>> Work(int tokens) {
    ReplicaId me = ReplicaId::Make(clock_, random_);
    CAISSON_CO_ASSIGN(auto claim, co_await store_->ClaimRun(me, Millis(60'000)));
    for (int i = 0; i < tokens; i++) {
      std::vector<events::NewEvent> one{
          {events::EventType::kToken, R"({"message_id":"m","attempt":1,"content":"x"})"}};
      CAISSON_CO_TRY(co_await store_->AppendEvents(claim->fence, std::move(one)));
    }
    store::RunChange done{store::RunStatus::kDone, "", "", {}};
    CAISSON_CO_TRY(co_await store_->ChangeRun(claim->fence, std::move(done)));
    co_return Result<void>();
  }
  std::string StreamPath(uint64_t after) const {
    return "/v1/sessions/" + session_ + "/stream?after=" + std::to_string(after) +
           "&until_end_of=" + run_;
  }
  std::string session_;
  std::string run_;
};

TEST_F(StreamTest, FollowsARunToItsEnd) {
  auto both = [](StreamTest& test) -> Task<Result<Answer>> {
    net::TaskGroup group;
    Result<void> worked;
    group.Start([](Task<Result<void>> task, Result<void>& into) -> Task<void> {
      into = co_await std::move(task);
    }(test.Work(300), worked));
    auto answer = co_await test.Ask({"GET", test.StreamPath(0), {}}, "");
    co_await group.Join();
    EXPECT_TRUE(worked.has_value());
    co_return answer;
  };
  Answer answer = Run(both(*this)).value();
  EXPECT_EQ(answer.headers.Find("content-type"), "text/event-stream");
  auto ids = Ids(answer.body);
  ASSERT_EQ(ids.size(), 303u);  // the message, two states, the tokens
  for (size_t i = 0; i < ids.size(); i++) EXPECT_EQ(ids[i], i + 1);
}

TEST_F(StreamTest, Case47_ReconnectGivesTheExactSuffix) {
  ASSERT_TRUE(Run(Work(500)).has_value());
  for (uint64_t cut : {uint64_t{0}, uint64_t{1}, uint64_t{37}, uint64_t{502}}) {
    auto ids = Ids(Call("GET", StreamPath(cut)).body);
    ASSERT_EQ(ids.size(), 503 - cut);
    EXPECT_EQ(ids.front(), cut + 1);
  }
  auto resumed = Ids(Call("GET", StreamPath(0), "", {{"Last-Event-ID", "37"}}).body);
  EXPECT_EQ(resumed.front(), 38u);
  EXPECT_EQ(Call("GET", StreamPath(0), "", {{"Last-Event-ID", "garbage"}}).Code(),
            "invalid_argument");
  EXPECT_EQ(Call("GET", StreamPath(100'000)).Code(), "invalid_argument");
}

TEST_F(StreamTest, Case50_AClientThatLeavesStopsNothing) {
  auto leave = [](StreamTest& test) -> Task<Result<void>> {
    CAISSON_CO_ASSIGN(auto stream, co_await net::DialTcp(test.loop_, "127.0.0.1",
                                                         test.server_->port(), test.Soon()));
    http::ClientConnection client(std::move(stream));
    CAISSON_CO_TRY(co_await client.Send({"GET", test.StreamPath(0), {{"Host", "localhost"}}}, "",
                                        test.Soon()));
    CAISSON_CO_TRY(co_await client.ReadBody(test.Soon()));
    co_return Result<void>();
  };
  ASSERT_TRUE(Run(leave(*this)).has_value());
  ASSERT_TRUE(Run(Work(10)).has_value());
  EXPECT_EQ(Call("GET", "/v1/runs/" + run_).Json()["status"].as_string(), "done");
  EXPECT_EQ(Ids(Call("GET", StreamPath(0)).body).size(), 13u);
}

TEST_F(StreamTest, EventsArePaged) {
  ASSERT_TRUE(Run(Work(10)).has_value());
  json::object page = Call("GET", "/v1/sessions/" + session_ + "/events?after=2&limit=3").Json();
  EXPECT_EQ(page["items"].as_array().size(), 3u);
  EXPECT_EQ(page["last_seq"].as_int64(), 5);
  EXPECT_EQ(page["items"].as_array()[0].as_object()["seq"].as_int64(), 3);
  EXPECT_EQ(Call("GET", "/v1/sessions/" + session_ + "/events?visibility=internal").Code(),
            "invalid_argument");
}

// Every reference in the description leads to something.
void CheckReferences(const json::value& value, const json::object& components) {
  if (value.is_array()) {
    for (const json::value& item : value.as_array()) CheckReferences(item, components);
  }
  if (!value.is_object()) return;
  for (const auto& field : value.as_object()) {
    if (field.key() != "$ref") {
      CheckReferences(field.value(), components);
      continue;
    }
    std::string name(field.value().as_string());
    EXPECT_TRUE(components.contains(name.substr(name.rfind('/') + 1))) << name;
  }
}

// The description and the server must not drift apart: every described operation exists, says its
// errors as problems, and what its answer looks like. That the answers look so is tested with the
// whole server (tests/program).
TEST_F(ApiTest, TheDescriptionIsTrue) {
  json::object description = Call("GET", "/openapi.json").Json();
  EXPECT_EQ(description["openapi"].as_string(), "3.1.0");
  size_t operations = 0;
  for (const auto& path : description["paths"].as_object()) {
    for (const auto& operation : path.value().as_object()) {
      operations++;
      std::string method(operation.key());
      for (char& c : method) c = static_cast<char>(c - 'a' + 'A');
      std::string target(path.key());
      for (size_t open = target.find('{'); open != std::string::npos; open = target.find('{')) {
        target.replace(open, target.find('}') - open + 1, "unknown");
      }
      bool has_body = operation.value().as_object().contains("requestBody");
      Answer answer = Call(method, target, has_body ? "[" : "");
      EXPECT_NE(answer.status, 405) << method << " " << target;
      EXPECT_EQ(answer.body.find("there is no route"), std::string::npos)
          << method << " " << target;
      if (answer.status >= 400) EXPECT_EQ(answer.headers.Find("content-type"), kProblemMedia);
      const json::object& success = operation.value().at("responses").at("2XX").as_object();
      if (!success.contains("content")) continue;
      for (const auto& media : success.at("content").as_object()) {
        EXPECT_EQ(media.value().at("schema").as_object().contains("$ref"),
                  media.key() == "application/json")
            << method << " " << target;
      }
    }
  }
  CheckReferences(description, description["components"].at("schemas").as_object());
  EXPECT_EQ(operations, router_.routes().size());
}

}  // namespace
}  // namespace caisson::api
