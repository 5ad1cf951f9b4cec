#include "agent/engine.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "agent/payloads.h"
#include "net/loop.h"

namespace caisson::agent {
namespace {

using events::EventType;
using model::AttemptResult;
using model::ModelReply;
using model::StopReason;

// A model that plays answers, and remembers what it was asked.
class ScriptedModel final : public model::Provider {
 public:
  Task<AttemptResult> Complete(const model::ModelRequest& request, model::DeltaSink& sink,
                               Until) override {
    requests.push_back(request);
    if (answers.empty())
      co_return std::unexpected(
          model::AttemptError{{ErrorCode::kInternal, "script over", {}, {}}, {}});
    AttemptResult answer = std::move(answers.front());
    answers.pop_front();
    if (!partial.empty()) {
      (void)co_await sink.OnText(partial);
      partial.clear();
    }
    if (answer && !answer->text.empty()) (void)co_await sink.OnText(answer->text);
    co_return answer;
  }
  void Say(std::string text) {
    answers.push_back(
        ModelReply{std::move(text), {}, StopReason::kEnd, model::Usage{10, 5, {}, {}, {}}, "m-1"});
  }
  void Call(std::vector<model::ToolCall> calls, StopReason reason = StopReason::kToolCalls) {
    answers.push_back(ModelReply{"", std::move(calls), reason, std::nullopt, "m-1"});
  }
  void FailWith(ErrorCode code, std::optional<Millis> retry_after = Millis(1)) {
    answers.push_back(
        std::unexpected(model::AttemptError{{code, "scripted", {}, {}}, retry_after}));
  }
  std::deque<AttemptResult> answers;
  std::vector<model::ModelRequest> requests;
  std::string partial;  // streamed before the next answer
};

class FakeTools final : public Toolbox {
 public:
  const std::vector<model::ToolSpec>& specs() const override { return specs_; }
  Task<Result<ToolOutcome>> Call(std::string id, std::string name, json::object arguments,
                                 Until until) override {
    called.push_back(id + ":" + name + ":" + json::Serialize(arguments));
    if (name == "slow") CAISSON_CO_TRY(co_await net::Loop::Current()->Sleep(until));
    if (name == "fatal") co_return Fail(ErrorCode::kFenced, "fenced");
    if (name == "silent") co_return ToolOutcome{};
    if (name == "large") co_return ToolOutcome{std::string(200'000, 'x'), {}, 0, "exited", false};
    if (name == "wide") {
      std::string text;
      while (text.size() < 200'000) text += "é";
      co_return ToolOutcome{"a" + text, {}, 0, "exited", false};
    }
    co_return ToolOutcome{"result of " + name, {}, 7, "exited", false};
  }
  std::vector<std::string> called;

 private:
  std::vector<model::ToolSpec> specs_{
      {"echo", "", "{}"},  {"slow", "", "{}"}, {"fatal", "", "{}"},  {"silent", "", "{}"},
      {"large", "", "{}"}, {"wide", "", "{}"}, {"hidden", "", "{}"}, {"blocked", "", "{}"}};
};

class EngineTest : public ::testing::Test, public EventSink {
 public:
  Task<Result<void>> Emit(std::vector<events::NewEvent> events) override {
    for (auto& event : events) {
      EXPECT_TRUE(events::ValidatePayload(event.type, event.payload).has_value()) << event.payload;
      log.push_back(std::move(event));
    }
    if (emit_error.has_value()) co_return Fail(*emit_error);
    co_return Result<void>();
  }
  EngineOutcome Run(std::stop_token stop = {}) {
    config.excluded_tools = {"hidden"};
    config.blocked_tools = {"blocked"};
    Conversation conversation;
    events::Event hello;
    hello.type = EventType::kUserMessage;
    hello.payload = R"({"message_id":"m","content":[{"type":"text","text":"hello"}]})";
    EXPECT_TRUE(conversation.Apply(hello).has_value());
    Engine engine(config, std::move(conversation), model, tools, *this, clock, random);
    EngineOutcome outcome =
        net::RunUntilDone(loop, engine.Run(Until(Deadline::After(clock, Millis(30'000)), stop)));
    // As the worker does, with the run's end.
    (void)net::RunUntilDone(loop, Emit(outcome.last_word));
    return outcome;
  }
  size_t Count(EventType type) const {
    return static_cast<size_t>(
        std::ranges::count_if(log, [&](auto& event) { return event.type == type; }));
  }
  json::object Payload(EventType type, size_t nth = 0) const {
    for (const auto& event : log) {
      if (event.type == type && nth-- == 0) return json::ParseObject(event.payload).value();
    }
    ADD_FAILURE() << "no such event";
    return {};
  }
  SystemClock clock;
  SystemRandom random;
  net::Loop loop{clock};
  ScriptedModel model;
  FakeTools tools;
  EngineConfig config;
  std::vector<events::NewEvent> log;
  std::optional<Error> emit_error;
};

TEST_F(EngineTest, AnswersWithoutTools) {
  model.Say("hi");
  EngineOutcome outcome = Run();
  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(outcome.text, "hi");
  EXPECT_EQ(outcome.usage.sum.input_tokens, 10);
  EXPECT_EQ(Payload(EventType::kToken)["content"].as_string(), "hi");
  EXPECT_EQ(Payload(EventType::kAssistantMessage)["stop_reason"].as_string(), "end");
}

TEST_F(EngineTest, RunsParallelToolsAndGoesOn) {
  model.Call({{"a", "echo", R"({"x":1})"}, {"b", "echo", ""}});
  model.Say("done");
  EngineOutcome outcome = Run();
  EXPECT_FALSE(outcome.error.has_value());
  EXPECT_EQ(tools.called, (std::vector<std::string>{"a:echo:{\"x\":1}", "b:echo:{}"}));
  EXPECT_EQ(Count(EventType::kToolCall), 2u);
  EXPECT_EQ(Payload(EventType::kToolCall)["args"].as_object()["x"].as_int64(), 1)
      << "arguments are complete";
  EXPECT_EQ(Payload(EventType::kToolResult)["exit_code"].as_int64(), 7);
  const auto& messages = model.requests[1].messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[2].tool_call_id, "a");
  EXPECT_EQ(messages[3].tool_call_id, "b");
  EXPECT_EQ(outcome.usage.model_calls, 2u);
  EXPECT_EQ(outcome.usage.reported_model_calls, 1u);
}

TEST_F(EngineTest, Case54_CallsOfACutAnswerAreNotRun) {
  model.Call({{"a", "echo", R"({"path":"x"})"}, {"b", "echo", R"({"pa)"}}, StopReason::kLength);
  model.Say("smaller then");
  EXPECT_FALSE(Run().error.has_value());
  EXPECT_TRUE(tools.called.empty());
  EXPECT_EQ(Count(EventType::kToolFailed), 2u);
  EXPECT_NE(model.requests[1].messages[2].text.find("cut by the output limit"), std::string::npos);
}

TEST_F(EngineTest, Case54_CutAnswersEndTheRunAtLast) {
  for (int i = 0; i < 5; i++) model.Call({{"a", "echo", "{}"}}, StopReason::kLength);
  EXPECT_EQ(Run().error->code, ErrorCode::kModelOutputLimit);
  EXPECT_EQ(model.requests.size(), 2u);
}

TEST_F(EngineTest, Case55_APartialAnswerIsDiscardedBeforeTheNextAttempt) {
  model.partial = "half an ans";
  model.FailWith(ErrorCode::kModelUnavailable);
  model.Say("whole");
  EngineOutcome outcome = Run();
  EXPECT_EQ(outcome.text, "whole");
  ASSERT_EQ(log.size(), 5u);
  EXPECT_EQ(log[0].type, EventType::kToken);
  EXPECT_EQ(log[1].type, EventType::kMessageDiscarded);
  EXPECT_EQ(log[2].type, EventType::kModelRetry);
  EXPECT_EQ(log[3].type, EventType::kToken);
  EXPECT_EQ(Payload(EventType::kToken, 1)["attempt"].as_int64(), 2);
  EXPECT_EQ(Payload(EventType::kAssistantMessage)["content"].as_array().size(), 1u);
}

TEST_F(EngineTest, Case56_IdsAreMadeUnique) {
  model.Call({{"a", "echo", "{\"n\":1}"}, {"a", "echo", "{\"n\":2}"}, {"", "echo", "{\"n\":3}"}});
  model.Call({{"a", "echo", "{\"n\":4}"}});
  model.Say("done");
  EXPECT_FALSE(Run().error.has_value());
  EXPECT_EQ(tools.called.size(), 4u);
  std::set<std::string> ids;
  for (const auto& message : model.requests[2].messages) {
    if (message.role == model::Role::kTool) ids.insert(message.tool_call_id);
  }
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_FALSE(ids.contains(""));
}

TEST_F(EngineTest, Case57_EmptyResultsAreSaid) {
  model.Call({{"a", "silent", "{}"}});
  model.Say("done");
  Run();
  EXPECT_EQ(model.requests[1].messages[2].text, "(no output)");
}

TEST_F(EngineTest, Case62_RetriesAreBoundedAndOnlyForWhatMayPass) {
  for (int i = 0; i < 5; i++) model.FailWith(ErrorCode::kModelRateLimited, Millis(1));
  EXPECT_EQ(Run().error->code, ErrorCode::kModelRateLimited);
  EXPECT_EQ(model.requests.size(), 3u);
  EXPECT_EQ(Payload(EventType::kModelRetry)["wait_ms"].as_int64(), 1);
  model.answers.clear();
  model.requests.clear();
  model.FailWith(ErrorCode::kModelUnauthorized);
  EXPECT_EQ(Run().error->code, ErrorCode::kModelUnauthorized);
  EXPECT_EQ(model.requests.size(), 1u);
}

TEST_F(EngineTest, Case63_UnknownHiddenAndBlockedToolsAreAnsweredNotRun) {
  model.Call({{"a", "nope", "{}"},
              {"b", "Echo", "{}"},
              {"c", "hidden", "{}"},
              {"d", "blocked", "{}"},
              {"e", "echo", "[1]"},
              {"f", "../x", "{}"}});
  model.Say("done");
  EXPECT_FALSE(Run().error.has_value());
  EXPECT_TRUE(tools.called.empty());
  EXPECT_EQ(Count(EventType::kToolFailed), 6u);
  EXPECT_EQ(Count(EventType::kToolSafety), 2u);
  std::string told = model.requests[1].messages[2].text;
  EXPECT_NE(told.find("echo, slow"), std::string::npos) << told;
  EXPECT_EQ(told.find("hidden"), std::string::npos);
  for (const auto& tool : model.requests[0].tools) EXPECT_NE(tool.name, "hidden");
}

TEST_F(EngineTest, LargeOutputIsCutOnWholeCharacters) {
  model.Call({{"a", "large", "{}"}, {"b", "wide", "{}"}});
  model.Say("done");
  Run();
  EXPECT_TRUE(Payload(EventType::kToolResult)["truncated"].as_bool());
  for (size_t i : {2u, 3u}) {
    const std::string& shown = model.requests[1].messages[i].text;
    EXPECT_LT(shown.size(), 81'000u);
    EXPECT_NE(shown.find("bytes left out"), std::string::npos);
    EXPECT_TRUE(json::Parse(json::Serialize(json::value(shown))).has_value()) << "broken UTF-8";
  }
}

TEST_F(EngineTest, StopsAtTheStepLimit) {
  config.max_steps = 3;
  for (int i = 0; i < 5; i++) model.Call({{"a", "echo", "{}"}});
  EXPECT_EQ(Run().error->code, ErrorCode::kStepLimit);
  EXPECT_EQ(model.requests.size(), 3u);
}

TEST_F(EngineTest, CancelReachesAToolAndKeepsFinishedSiblings) {
  std::stop_source source;
  model.Call({{"a", "echo", "{}"}, {"b", "slow", "{}"}});
  loop.Post([&] { source.request_stop(); });
  EXPECT_EQ(Run(source.get_token()).error->code, ErrorCode::kCancelled);
  EXPECT_EQ(Count(EventType::kToolResult), 1u);
}

TEST_F(EngineTest, AFatalErrorOfAToolEndsTheRun) {
  model.Call({{"a", "fatal", "{}"}});
  EXPECT_EQ(Run().error->code, ErrorCode::kFenced);
}

TEST_F(EngineTest, AnEventThatCannotBeWrittenEndsTheRun) {
  emit_error = Error{ErrorCode::kFenced, "fenced", {}, {}};
  model.Call({{"a", "echo", "{}"}});
  EXPECT_EQ(Run().error->code, ErrorCode::kFenced);
}

TEST(Conversation, RepairsCallsWithoutResultAndResultsWithoutCall) {
  Conversation conversation;
  auto apply = [&](EventType type, const std::string& payload) {
    events::Event event;
    event.type = type;
    event.payload = payload;
    EXPECT_TRUE(conversation.Apply(event).has_value());
  };
  apply(EventType::kUserMessage, R"({"content":[{"type":"text","text":"go"}]})");
  apply(
      EventType::kAssistantMessage,
      R"({"content":[],"tool_calls":[{"id":"a","name":"x","arguments":"{}"},{"id":"b","name":"y","arguments":"{}"}]})");
  apply(EventType::kToolResult, R"({"tool_call_id":"b","output":"B"})");
  apply(EventType::kToolResult, R"({"tool_call_id":"b","output":"B again"})");
  apply(EventType::kToolResult, R"({"tool_call_id":"ghost","output":"?"})");
  apply(EventType::kUserMessage, R"({"content":[{"type":"text","text":"  "}]})");
  apply(EventType::kUserMessage, R"({"content":[{"type":"text","text":"and?"}]})");
  auto messages = conversation.Messages();
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[2].tool_call_id, "a");
  EXPECT_EQ(messages[2].text, kInterruptedText);
  EXPECT_EQ(messages[3].text, "B");
  EXPECT_EQ(messages[4].text, "and?");
  ASSERT_EQ(conversation.OpenCalls().size(), 1u);
  EXPECT_EQ(conversation.OpenCalls()[0].id, "a");
}

}  // namespace
}  // namespace caisson::agent
