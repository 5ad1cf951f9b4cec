// Both protocols against a peer that plays exact bytes.
#include "model/provider.h"

#include <gtest/gtest.h>

#include <functional>

#include "guest/text.h"
#include "http/server.h"
#include "json/json.h"
#include "model/wire.h"

namespace caisson::model {
namespace {

// What the peer answers, and what it was asked.
struct Script {
  int status = 200;
  http::Headers headers{{"Content-Type", "text/event-stream"}};
  std::string body;
  bool cut = false;  // closes in the middle of the answer
  std::string path;
  std::string request;
  http::Headers request_headers;
};

class Collect final : public DeltaSink {
 public:
  Task<Result<void>> OnText(std::string_view piece) override {
    text += piece;
    pieces++;
    co_return Result<void>();
  }
  Task<Result<void>> OnReasoning(std::string_view piece) override {
    reasoning += piece;
    co_return Result<void>();
  }
  std::string text;
  std::string reasoning;
  int pieces = 0;
};

class ProviderTest : public ::testing::Test {
 public:
  AttemptResult Ask(Protocol protocol, Script& script, ModelRequest request, Collect& sink) {
    auto work = [&]() -> Task<AttemptResult> {
      http::Handler handler = [&](http::ServerRequest& in,
                                  http::ServerResponse& out) -> Task<void> {
        script.path = in.path();
        script.request_headers = in.head().headers;
        script.request = (co_await in.ReadWholeBody(1 << 20)).value();
        (void)co_await out.Start(script.status, script.headers);
        (void)co_await out.Write(script.body);
        if (!script.cut) (void)co_await out.Finish();
      };
      http::Server server(loop_, net::ListenTcp(loop_, "127.0.0.1", 0).value(), {}, handler,
                          [](const Error&) { return std::string(); });
      server.Start();
      ProviderDefinition definition;
      definition.protocol = protocol;
      definition.base_url = "http://127.0.0.1:" + std::to_string(server.port()) + "/base";
      http::Connector connector(loop_, resolver_, {});
      auto provider = MakeProvider(definition, "the-key", connector, clock_);
      Until until(Deadline::After(clock_, Millis(30'000)));
      auto reply = co_await provider->Complete(request, sink, until);
      co_await server.Drain(Deadline::After(clock_, Millis(1000)));
      co_return reply;
    };
    return net::RunUntilDone(loop_, work());
  }
  AttemptResult Ask(Protocol protocol, std::string body, bool cut = false) {
    Script script;
    script.body = std::move(body);
    script.cut = cut;
    Collect sink;
    return Ask(protocol, script, {"m", "", {{Role::kUser, "hi", {}, "", false}}, {}, {}, {}}, sink);
  }
  AttemptError Refused(int status, std::string body, http::Headers headers = {}) {
    Script script;
    script.status = status;
    script.body = std::move(body);
    script.headers = std::move(headers);
    Collect sink;
    return Ask(Protocol::kOpenAi, script, {"m", "", {}, {}, {}, {}}, sink).error();
  }
  SystemClock clock_;
  net::Loop loop_{clock_};
  net::Resolver resolver_;
};

ModelRequest Conversation() {
  ModelRequest request;
  request.model = "m";
  request.system = "be brief";
  request.messages = {
      {Role::kUser, "hello", {}, "", false},
      {Role::kAssistant, "", {{"c1", "ls", R"({"path":"/"})"}, {"c2", "ls", "{bad"}}, "", false},
      {Role::kTool, "bin", {}, "c1", false},
      {Role::kTool, "malformed arguments", {}, "c2", true},
      {Role::kUser, "go on", {}, "", false}};
  request.tools = {{"ls", "List.", R"({"type":"object"})"}};
  request.max_tokens = 100;
  return request;
}

constexpr auto kOpenAi = Protocol::kOpenAi;
constexpr auto kAnthropic = Protocol::kAnthropic;

// Three calls on two connections: the first connection is kept after its answer and closed by the
// provider just as the second call is on its way, which then goes over a new one.
TEST_F(ProviderTest, ConnectionsAreKeptAndReplacedWhenTheProviderClosesThem) {
  const std::string event =
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":"
      "\"stop\"}]}\n\ndata: [DONE]\n\n";
  const std::string answer =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: " +
      std::to_string(event.size()) + "\r\n\r\n" + event;
  Until soon(Deadline::After(clock_, Millis(30'000)));
  auto listener = net::ListenTcp(loop_, "127.0.0.1", 0).value();
  // Takes one request, whose body ends with a brace.
  auto take = [&](net::Stream& stream) -> Task<Result<void>> {
    std::string request;
    std::string piece(65536, '\0');
    while (!request.ends_with('}')) {
      CAISSON_CO_ASSIGN(size_t got, co_await stream.Read(piece, soon));
      if (got == 0) co_return Fail(ErrorCode::kConnectionLost, "no request");
      request.append(piece, 0, got);
    }
    co_return Result<void>();
  };
  auto serve = [&]() -> Task<Result<void>> {
    CAISSON_CO_ASSIGN(net::StreamPtr first, co_await listener.Accept(soon));
    CAISSON_CO_TRY(co_await take(*first));
    CAISSON_CO_TRY(co_await first->Write(answer, soon));
    CAISSON_CO_TRY(co_await take(*first));
    first.reset();
    CAISSON_CO_ASSIGN(net::StreamPtr second, co_await listener.Accept(soon));
    for (int call = 0; call < 2; call++) {
      CAISSON_CO_TRY(co_await take(*second));
      CAISSON_CO_TRY(co_await second->Write(answer, soon));
    }
    co_return Result<void>();
  };
  Result<void> served;
  auto peer = [&]() -> Task<void> { served = co_await serve(); };
  auto work = [&]() -> Task<Result<int>> {
    net::TaskGroup group;
    group.Start(peer());
    ProviderDefinition definition;
    definition.base_url = "http://127.0.0.1:" + std::to_string(listener.Port().value());
    http::Connector connector(loop_, resolver_, {});
    auto provider = MakeProvider(definition, "", connector, clock_);
    int replies = 0;
    for (int call = 0; call < 3; call++) {
      Collect sink;
      auto reply = co_await provider->Complete({"m", "", {}, {}, {}, {}}, sink, soon);
      if (!reply) {
        ADD_FAILURE() << reply.error().error.ToString();
        break;
      }
      replies += reply->text == "ok" ? 1 : 0;
    }
    co_await group.Join();
    co_return replies;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).value(), 3);
  EXPECT_TRUE(served.has_value()) << served.error().ToString();
}

TEST_F(ProviderTest, OpenAiStreamsTextCallsAndUsage) {
  Script script;
  script.body =
      ": ping\n\n"
      R"(data: {"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{"content":"lo"}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"ls","arguments":""}},{"index":1,"id":"b","function":{"name":"grep","arguments":"{\"p"}}]}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"\":1}"}},{"index":0,"function":{"arguments":"{}"}}]}}]})"
      "\n\n"
      R"(data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]})"
      "\n\n"
      R"(data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}})"
      "\n\ndata: [DONE]\n\n";
  Collect sink;
  auto reply = Ask(kOpenAi, script, Conversation(), sink);
  ASSERT_TRUE(reply.has_value()) << reply.error().error.ToString();
  EXPECT_EQ(reply->text, "Hello");
  EXPECT_EQ(sink.text, "Hello");
  EXPECT_EQ(sink.reasoning, "hm");
  EXPECT_EQ(reply->model, "m-1");
  ASSERT_EQ(reply->tool_calls.size(), 2u);
  EXPECT_EQ(reply->tool_calls[1].arguments, R"({"p":1})");
  EXPECT_EQ(reply->stop_reason, StopReason::kToolCalls);
  EXPECT_EQ(reply->usage->input_tokens, 10);
  EXPECT_EQ(reply->usage->cache_read_tokens, 4);
  EXPECT_FALSE(reply->usage->reasoning_tokens.has_value());

  EXPECT_EQ(script.path, "/base/chat/completions");
  EXPECT_EQ(script.request_headers.Find("authorization"), "Bearer the-key");
  json::object sent = json::ParseObject(script.request).value();
  const json::array& messages = sent["messages"].as_array();
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0].as_object().at("role").as_string(), "system");
  EXPECT_FALSE(messages[2].as_object().contains("content")) << "an empty text goes out";
  EXPECT_EQ(messages[3].as_object().at("tool_call_id").as_string(), "c1");
  EXPECT_EQ(sent["max_completion_tokens"].as_int64(), 100);
  EXPECT_TRUE(sent["stream_options"].as_object()["include_usage"].as_bool());
}

// Compatible servers: no index, whole calls, "stop" with calls, no [DONE].
TEST_F(ProviderTest, OpenAiCompatibleServersAreUnderstood) {
  auto reply = Ask(
      kOpenAi,
      R"(data: {"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"name":"a","arguments":"{}"}}]}}]})"
      "\n\n"
      R"(data: {"choices":[{"delta":{"tool_calls":[{"id":"y","function":{"name":"b","arguments":"{}"}}]}}]})"
      "\n\n"
      R"(data: {"choices":[{"delta":{},"finish_reason":"stop"}]})"
      "\n\n");
  ASSERT_TRUE(reply.has_value());
  ASSERT_EQ(reply->tool_calls.size(), 2u);
  EXPECT_EQ(reply->tool_calls[1].name, "b");
  EXPECT_EQ(reply->stop_reason, StopReason::kToolCalls);
  EXPECT_FALSE(reply->usage.has_value());
}

TEST_F(ProviderTest, Case55_ABrokenStreamIsNoReply) {
  std::string half = R"(data: {"choices":[{"delta":{"content":"half"}}]})"
                     "\n\n";
  std::string call =
      R"(data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"a","arguments":"{"}}]}}]})"
      "\n\n";
  for (const std::string& body : {half, call, std::string()}) {
    for (bool cut : {true, false}) {
      auto reply = Ask(kOpenAi, body, cut);
      ASSERT_FALSE(reply.has_value());
      EXPECT_EQ(reply.error().error.code, ErrorCode::kModelUnavailable)
          << reply.error().error.ToString();
      EXPECT_TRUE(reply.error().error.retryable());
    }
  }
  auto error = Ask(kOpenAi, half + R"(data: {"error":{"message":"boom","type":"server_error"}})"
                                   "\n\n");
  EXPECT_EQ(error.error().error.code, ErrorCode::kModelUnavailable);
  EXPECT_NE(error.error().error.message.find("boom"), std::string::npos);
  EXPECT_EQ(Ask(kOpenAi, half + "data: {garbage\n\n").error().error.code,
            ErrorCode::kModelProtocol);
}

TEST_F(ProviderTest, Case62_StatusesBecomeTheRightErrors) {
  AttemptError limited =
      Refused(429, R"({"error":{"message":"slow down"}})", {{"Retry-After", "2"}});
  EXPECT_EQ(limited.error.code, ErrorCode::kModelRateLimited);
  EXPECT_EQ(limited.retry_after, Millis(2000));
  EXPECT_EQ(Refused(429, "", {{"retry-after-ms", "150"}}).retry_after, Millis(150));
  EXPECT_EQ(Refused(429, "").retry_after, std::nullopt);
  EXPECT_EQ(Refused(529, "").error.code, ErrorCode::kModelUnavailable);
  EXPECT_EQ(Refused(401, R"({"error":{"message":"bad key"}})").error.code,
            ErrorCode::kModelUnauthorized);
  AttemptError bad = Refused(400, R"({"error":{"message":"no such model"}})");
  EXPECT_EQ(bad.error.code, ErrorCode::kModelBadRequest);
  EXPECT_FALSE(bad.error.retryable());
  EXPECT_EQ(Refused(400, R"({"error":{"code":"context_length_exceeded","message":"too long"}})")
                .error.code,
            ErrorCode::kModelContextOverflow);
}

// A reason becomes part of events and answers, which are JSON.
TEST_F(ProviderTest, ReasonsAreShortAndValidText) {
  std::string two_bytes;
  for (int i = 0; i < 300; i++) two_bytes += "\u00e9";
  for (const std::string& reason : {two_bytes, "x" + two_bytes}) {
    std::string body = R"({"error":{"message":")" + reason + R"("}})";
    std::string event = "event: error\ndata: " + body + "\n\n";
    for (const AttemptError& refused :
         {Refused(500, body), Refused(500, reason), Ask(kAnthropic, event).error()}) {
      const std::string& message = refused.error.message;
      EXPECT_TRUE(guest::IsValidUtf8(message)) << message;
      EXPECT_NE(message.find("\u00e9\u00e9"), std::string::npos);
      EXPECT_LT(message.size(), 600u);
    }
  }
  // A page of some proxy, in Latin-1.
  std::string message = Refused(502, "<h1>Passerelle\xe9</h1>").error.message;
  EXPECT_TRUE(guest::IsValidUtf8(message)) << message;
  EXPECT_NE(message.find("Passerelle"), std::string::npos) << message;
}

// Servers that cut by UTF-16 send the halves of a character in different events.
TEST_F(ProviderTest, HalvesOfACharacterAreJoined) {
  auto openai =
      Ask(kOpenAi, R"(data: {"choices":[{"delta":{"content":"a \\ud83d \ud83d\ude01\ud83d"}}]})"
                   "\n\n"
                   R"(data: {"choices":[{"delta":{"content":""}}]})"
                   "\n\n"
                   R"(data: {"choices":[{"delta":{"content":"\uDE00 b"},"finish_reason":"stop"}]})"
                   "\n\n");
  ASSERT_TRUE(openai.has_value()) << openai.error().error.ToString();
  EXPECT_EQ(openai->text, "a \\ud83d \U0001F601\U0001F600 b");
}

TEST(JoinSurrogates, LeavesEverythingElseAlone) {
  struct Case {
    const char* from;
    const char* to;
    const char* half;
  };
  for (const Case& c : {
           Case{R"("plain \" \n \u00e9")", R"("plain \" \n \u00e9")", ""},
           Case{R"("\uD83D\uDE00")", R"("\uD83D\uDE00")", ""},
           Case{R"("\\ud83d")", R"("\\ud83d")", ""},
           Case{R"("\ud83d")", R"("")", R"(\ud83d)"},
           Case{R"("\ude00")", R"("\ufffd")", ""},
           Case{R"("\ude00\ud83dx\ude00")", R"("\ufffdx\ud83d\ude00")", ""},
           Case{R"("\ud83)", R"("\ud83)", ""},
           Case{R"("\ud83d\)", R"("\)", R"(\ud83d)"},
           Case{R"("\ud83d\u)", R"("\u)", R"(\ud83d)"},
       }) {
    std::string text = c.from;
    std::string half;
    JoinSurrogates(text, half);
    EXPECT_EQ(text, c.to) << c.from;
    EXPECT_EQ(half, c.half) << c.from;
  }
}

TEST(RetryAfter, ReadsDatesAndCapsThem) {
  WallTime now = ParseTime("2026-11-30T10:00:00Z").value();
  EXPECT_EQ(ReadRetryAfter({{"Retry-After", "Mon, 30 Nov 2026 10:00:30 GMT"}}, now),
            Millis(30'000));
  EXPECT_EQ(ReadRetryAfter({{"Retry-After", "Mon, 30 Nov 2026 09:00:00 GMT"}}, now), Millis(0));
  EXPECT_EQ(ReadRetryAfter({{"Retry-After", "999999999"}}, now), Millis(3'600'000));
  EXPECT_EQ(ReadRetryAfter({{"Retry-After", "soon"}}, now), std::nullopt);
  EXPECT_EQ(ReadRetryAfter({{"Retry-After", "-5"}}, now), std::nullopt);
}

TEST_F(ProviderTest, AnthropicStreamsTextCallsAndUsage) {
  Script script;
  script.body =
      R"(event: message_start
data: {"type":"message_start","message":{"id":"1","model":"c-1","usage":{"input_tokens":7,"cache_read_input_tokens":3,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: ping
data: {}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"ls","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"path\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"/\"}"}}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t2","name":"pwd","input":{}}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

)";
  Collect sink;
  auto reply = Ask(kAnthropic, script, Conversation(), sink);
  ASSERT_TRUE(reply.has_value()) << reply.error().error.ToString();
  EXPECT_EQ(reply->text, "Hello");
  ASSERT_EQ(reply->tool_calls.size(), 2u);
  EXPECT_EQ(reply->tool_calls[0].arguments, R"({"path":"/"})");
  EXPECT_EQ(reply->tool_calls[1].arguments, "{}");
  EXPECT_EQ(reply->stop_reason, StopReason::kToolCalls);
  EXPECT_EQ(reply->usage->input_tokens, 10);
  EXPECT_EQ(reply->usage->output_tokens, 9);

  EXPECT_EQ(script.path, "/base/v1/messages");
  EXPECT_EQ(script.request_headers.Find("x-api-key"), "the-key");
  EXPECT_TRUE(script.request_headers.Find("anthropic-version").has_value());
  json::object sent = json::ParseObject(script.request).value();
  const json::array& turns = sent["messages"].as_array();
  ASSERT_EQ(turns.size(), 3u) << "turns must alternate";
  const json::array& results = turns[2].as_object().at("content").as_array();
  EXPECT_EQ(results[0].as_object().at("type").as_string(), "tool_result");
  EXPECT_TRUE(results[1].as_object().at("is_error").as_bool());
  EXPECT_EQ(results[2].as_object().at("text").as_string(), "go on");
}

TEST_F(ProviderTest, AnthropicErrorsInTheStream) {
  auto overloaded = Ask(
      kAnthropic,
      "event: error\ndata: "
      "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n");
  EXPECT_EQ(overloaded.error().error.code, ErrorCode::kModelUnavailable);
  auto invalid =
      Ask(kAnthropic,
          "event: error\ndata: {\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt "
          "is too long\"}}\n\n");
  EXPECT_EQ(invalid.error().error.code, ErrorCode::kModelContextOverflow);
  auto cut =
      Ask(kAnthropic, "event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
          true);
  EXPECT_EQ(cut.error().error.code, ErrorCode::kModelUnavailable);
}

}  // namespace
}  // namespace caisson::model
