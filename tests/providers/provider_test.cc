// Each protocol against a provider that we did not write: one attempt at a time.
//
// What the mock cannot provoke stays with src/model/provider_test.cc: an error object in the middle
// of a stream, garbage inside a stream, "retry-after-ms" and dates in Retry-After, tokens of the
// cache and of reasoning in the usage, pings and comments, chunks without index, an Anthropic
// answer without usage (it says zero then).
#include <gtest/gtest.h>

#include "json/json.h"
#include "mock.h"
#include "model/provider.h"
#include "net/loop.h"

namespace caisson::providers_test {
namespace {

using model::AttemptError;
using model::AttemptResult;
using model::ModelReply;
using model::ModelRequest;
using model::Protocol;
using model::Role;
using model::StopReason;

class Collect final : public model::DeltaSink {
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

ModelRequest Asking(std::string text) {
  ModelRequest request;
  request.model = "mock-model";
  request.system = "be brief";
  request.messages = {{Role::kUser, std::move(text), {}, "", false}};
  request.tools = {{"ls", "List.", R"({"type":"object"})"},
                   {"grep", "Find.", R"({"type":"object"})"}};
  request.max_tokens = 100;
  request.temperature = 0.5;
  return request;
}

class MockedProviderTest : public ::testing::TestWithParam<Protocol> {
 public:
  static void SetUpTestSuite() {
    if (Mock::Missing().empty()) mock = std::make_unique<Mock>();
  }
  static void TearDownTestSuite() { mock.reset(); }
  void SetUp() override {
    if (!mock) GTEST_SKIP() << Mock::Missing();
  }

  AttemptResult Complete(const ModelRequest& request, Collect& sink, const std::string& key = kKey,
                         Millis timeout = Millis(60'000)) {
    model::ProviderDefinition definition;
    definition.protocol = GetParam();
    definition.base_url = mock->BaseUrl(GetParam());
    definition.timeout = timeout;
    http::Connector connector(loop_, resolver_, {});
    auto provider = model::MakeProvider(definition, key, connector, clock_);
    Until until(Deadline::After(clock_, Millis(120'000)));
    return net::RunUntilDone(loop_, provider->Complete(request, sink, until));
  }
  // The reply; its text is also what was streamed.
  ModelReply Reply(const ModelRequest& request) {
    Collect sink;
    auto reply = Complete(request, sink);
    if (!reply) {
      ADD_FAILURE() << reply.error().error.ToString();
      return {};
    }
    EXPECT_EQ(sink.text, reply->text);
    return std::move(*reply);
  }
  ModelReply Reply(std::string text) { return Reply(Asking(std::move(text))); }
  AttemptError Failure(std::string text, Millis timeout = Millis(60'000)) {
    Collect sink;
    auto reply = Complete(Asking(std::move(text)), sink, kKey, timeout);
    if (!reply) return std::move(reply.error());
    ADD_FAILURE() << "a reply: " << reply->text;
    return {};
  }

  static std::unique_ptr<Mock> mock;
  SystemClock clock_;
  net::Loop loop_{clock_};
  net::Resolver resolver_;
};
std::unique_ptr<Mock> MockedProviderTest::mock;

INSTANTIATE_TEST_SUITE_P(Protocols, MockedProviderTest,
                         ::testing::Values(Protocol::kOpenAi, Protocol::kAnthropic),
                         [](const auto& instance) {
                           return instance.param == Protocol::kOpenAi ? "OpenAi" : "Anthropic";
                         });

TEST_P(MockedProviderTest, APlainAnswerIsStreamedWithItsUsage) {
  Collect sink;
  auto reply = Complete(Asking("plain"), sink);
  ASSERT_TRUE(reply.has_value()) << reply.error().error.ToString();
  EXPECT_EQ(reply->text, "Hello, w\u00f6rld: 1 < 2 & \"3\"\n");
  EXPECT_EQ(sink.text, reply->text);
  EXPECT_GT(sink.pieces, 3);
  EXPECT_EQ(reply->model, "mock-1");
  EXPECT_EQ(reply->stop_reason, StopReason::kEnd);
  EXPECT_TRUE(reply->tool_calls.empty());
  ASSERT_TRUE(reply->usage.has_value());
  EXPECT_EQ(reply->usage->input_tokens, 11);
  EXPECT_EQ(reply->usage->output_tokens, 3);
}

TEST_P(MockedProviderTest, ReasoningIsStreamedApart) {
  Collect sink;
  auto reply = Complete(Asking("think"), sink);
  ASSERT_TRUE(reply.has_value()) << reply.error().error.ToString();
  EXPECT_EQ(sink.reasoning, "six times seven");
  EXPECT_EQ(reply->text, "42");
  EXPECT_EQ(reply->model, "mock-model");
}

TEST_P(MockedProviderTest, TwoCallsAtOnceAndTheirResults) {
  ModelRequest request = Asking("two calls");
  ModelReply reply = Reply(request);
  EXPECT_EQ(reply.stop_reason, StopReason::kToolCalls);
  EXPECT_EQ(reply.text, "");
  ASSERT_EQ(reply.tool_calls.size(), 2u);
  EXPECT_EQ(reply.tool_calls[0].id, "call_ls");
  EXPECT_EQ(reply.tool_calls[0].name, "ls");
  EXPECT_EQ(json::Parse(reply.tool_calls[0].arguments).value(),
            json::Parse(R"({"path":"/"})").value());
  EXPECT_EQ(reply.tool_calls[1].id, "call_grep");
  EXPECT_EQ(reply.tool_calls[1].name, "grep");
  EXPECT_EQ(json::Parse(reply.tool_calls[1].arguments).value(),
            json::Parse(R"({"pattern":"a \"b\"\n\\é","max_count":3})").value());
  EXPECT_EQ(reply.usage->input_tokens, 21);
  EXPECT_EQ(reply.usage->output_tokens, 13);

  // The mock answers only when it finds the second call's result at the end.
  request.messages.push_back({Role::kAssistant, reply.text, reply.tool_calls, "", false});
  request.messages.push_back({Role::kTool, "bin etc usr", {}, "call_ls", false});
  request.messages.push_back({Role::kTool, "nothing found", {}, "call_grep", true});
  EXPECT_EQ(Reply(request).text, "Nothing is there.");
}

TEST_P(MockedProviderTest, TextAndCallsInAnyOrder) {
  // The mock answers this one only when it finds the system text.
  ModelReply reply = Reply("text and call");
  EXPECT_EQ(reply.text, "I look.");
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_EQ(reply.tool_calls[0].arguments, "{}");
  EXPECT_EQ(reply.stop_reason, StopReason::kToolCalls);
  reply = Reply("call before text");
  EXPECT_EQ(reply.text, "I look.");
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_EQ(reply.tool_calls[0].arguments, R"({"path":"."})");
}

// The mock cuts by UTF-16, in the middle of characters.
TEST_P(MockedProviderTest, CutCharactersAreJoined) {
  ModelReply reply = Reply("cut characters");
  EXPECT_EQ(reply.text, "\U0001F600 \u00e9 \U0001F601");
  ASSERT_EQ(reply.tool_calls.size(), 1u);
  EXPECT_EQ(json::Parse(reply.tool_calls[0].arguments).value(),
            (json::value{{"path", "\U0001F600/\u00e9"}}));
}

TEST_P(MockedProviderTest, StopReasons) {
  EXPECT_EQ(Reply("length").stop_reason, StopReason::kLength);
  ModelReply cut_call = Reply("cut call");
  EXPECT_EQ(cut_call.stop_reason, StopReason::kLength) << "the calls may be incomplete";
  EXPECT_EQ(cut_call.tool_calls.size(), 1u);
  EXPECT_EQ(Reply("strange end").stop_reason, StopReason::kOther);
  bool openai = GetParam() == Protocol::kOpenAi;
  EXPECT_EQ(Reply(openai ? "filtered" : "refused").stop_reason, StopReason::kRefused);
}

TEST_P(MockedProviderTest, OnlyTheRightKeyIsTaken) {
  for (const char* key : {"another-key", ""}) {
    Collect sink;
    auto reply = Complete(Asking("plain"), sink, key);
    ASSERT_FALSE(reply.has_value()) << key;
    EXPECT_EQ(reply.error().error.code, ErrorCode::kModelUnauthorized);
    EXPECT_FALSE(reply.error().error.retryable());
  }
}

TEST_P(MockedProviderTest, StatusesBecomeTheRightErrors) {
  AttemptError limited = Failure("status 429");
  EXPECT_EQ(limited.error.code, ErrorCode::kModelRateLimited);
  EXPECT_TRUE(limited.error.retryable());
  EXPECT_EQ(limited.retry_after, Millis(7000));
  struct Case {
    const char* text;
    ErrorCode code;
    const char* reason;
  };
  for (const Case& c : {
           Case{"status 400", ErrorCode::kModelBadRequest, "no such model"},
           Case{"status 403", ErrorCode::kModelUnauthorized, "not for you"},
           Case{"status 500", ErrorCode::kModelUnavailable, "boom"},
           Case{"status 529", ErrorCode::kModelUnavailable, "busy"},
           Case{"too long", ErrorCode::kModelContextOverflow, "1000001 tokens"},
           Case{"a question without an answer", ErrorCode::kModelBadRequest, "No fixture matched"},
       }) {
    AttemptError failure = Failure(c.text);
    EXPECT_EQ(failure.error.code, c.code) << failure.error.ToString();
    EXPECT_NE(failure.error.message.find(c.reason), std::string::npos) << failure.error.message;
    EXPECT_EQ(failure.retry_after, std::nullopt);
    EXPECT_EQ(failure.error.retryable(), c.code == ErrorCode::kModelUnavailable) << c.text;
  }
}

TEST_P(MockedProviderTest, ABrokenStreamIsNoReply) {
  for (const char* text : {"break at once", "break in text", "break in call"}) {
    AttemptError failure = Failure(text);
    EXPECT_EQ(failure.error.code, ErrorCode::kModelUnavailable) << failure.error.ToString();
    EXPECT_TRUE(failure.error.retryable()) << text;
  }
  Collect sink;
  EXPECT_FALSE(Complete(Asking("break in text"), sink).has_value());
  EXPECT_TRUE(std::string("half of an answer").starts_with(sink.text)) << sink.text;
  EXPECT_GT(sink.pieces, 0) << "nothing was streamed before the break";
}

TEST_P(MockedProviderTest, AnAnswerThatIsNoStreamIsNoReply) {
  EXPECT_EQ(Failure("garbage").error.code, ErrorCode::kModelUnavailable);
}

TEST_P(MockedProviderTest, AStreamThatStallsIsGivenUp) {
  for (const char* text : {"never begins", "stalls"}) {
    AttemptError failure = Failure(text, Millis(500));
    EXPECT_EQ(failure.error.code, ErrorCode::kModelUnavailable) << failure.error.ToString();
    EXPECT_TRUE(failure.error.retryable()) << text;
  }
}

// The timeout is for each piece: a whole answer may take longer.
TEST_P(MockedProviderTest, AStreamThatIsOnlySlowIsRead) {
  Collect sink;
  auto reply = Complete(Asking("drips"), sink, kKey, Millis(2000));
  ASSERT_TRUE(reply.has_value()) << reply.error().error.ToString();
  EXPECT_EQ(reply->text, "0123456789");
}

}  // namespace
}  // namespace caisson::providers_test
