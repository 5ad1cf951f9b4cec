#include "agent/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/payloads.h"
#include "net/loop.h"
#include "net/task_group.h"

namespace caisson::agent {
namespace {

constexpr Millis kDeltaPause{50};     // deltas are written at most this often,
constexpr size_t kDeltaBytes = 2048;  // or when so much has gathered
constexpr uint32_t kMaxCutTurns = 2;  // answers with calls that the output limit cut, in a row
constexpr Millis kFirstBackOff{500};

// Writes pieces of an answer to the log: the first at once, then gathered.
class DeltaWriter final : public model::DeltaSink {
 public:
  DeltaWriter(EventSink& sink, const Clock& clock, std::string message_id, uint32_t attempt)
      : sink_(sink), clock_(clock), message_id_(std::move(message_id)), attempt_(attempt) {}

  Task<Result<void>> OnText(std::string_view text) override {
    text_ += text;
    co_return co_await FlushIfDue();
  }
  Task<Result<void>> OnReasoning(std::string_view text) override {
    reasoning_ += text;
    co_return co_await FlushIfDue();
  }
  // What has gathered and is not written yet.
  std::vector<events::NewEvent> Take() {
    std::vector<events::NewEvent> events;
    if (!reasoning_.empty()) {
      events.push_back(ReasoningEvent(message_id_, attempt_, std::exchange(reasoning_, {})));
    }
    if (!text_.empty()) {
      events.push_back(TokenEvent(message_id_, attempt_, std::exchange(text_, {})));
    }
    return events;
  }
  bool written() const { return written_; }

 private:
  Task<Result<void>> FlushIfDue() {
    bool due = !written_ || clock_.MonoNow() - last_ >= kDeltaPause ||
               text_.size() + reasoning_.size() >= kDeltaBytes;
    if (!due) co_return Result<void>();
    written_ = true;
    last_ = clock_.MonoNow();
    co_return co_await sink_.Emit(Take());
  }

  EventSink& sink_;
  const Clock& clock_;
  std::string message_id_;
  uint32_t attempt_;
  std::string text_;
  std::string reasoning_;
  bool written_ = false;
  MonoTime last_{};
};

void Add(std::optional<int64_t>& sum, const std::optional<int64_t>& number) {
  if (number.has_value()) sum = sum.value_or(0) + *number;
}

bool Names(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Cuts in the middle, on whole UTF-8 sequences, and says by which limit.
void CutOutput(ToolOutcome& outcome, size_t limit) {
  if (outcome.output.size() <= limit) return;
  auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(outcome.output[at]) & 0xc0) == 0x80;
  };
  size_t head = limit / 2;
  size_t tail = outcome.output.size() - limit / 2;
  while (head > 0 && is_inside(head)) head--;
  while (tail < outcome.output.size() && is_inside(tail)) tail++;
  std::string note = fmt::format(
      "\n[… {} bytes left out: a tool result shows at most {} bytes …]\n", tail - head, limit);
  outcome.output = outcome.output.substr(0, head) + note + outcome.output.substr(tail);
  outcome.truncated = true;
}

}  // namespace

Engine::Engine(EngineConfig config, Conversation conversation, model::Provider& provider,
               Toolbox& tools, EventSink& sink, const Clock& clock, Random& random)
    : config_(std::move(config)),
      conversation_(std::move(conversation)),
      provider_(provider),
      tools_(tools),
      sink_(sink),
      clock_(clock),
      random_(random) {}

Task<EngineOutcome> Engine::Run(Until until) {
  uint32_t cut_turns = 0;
  for (uint32_t step = 0; step < config_.max_steps; step++) {
    auto reply = co_await AskModel(until);
    if (!reply) {
      outcome_.error = std::move(reply.error());
      co_return std::move(outcome_);
    }
    outcome_.text = reply->text;
    if (reply->tool_calls.empty()) co_return std::move(outcome_);
    cut_turns = reply->stop_reason == model::StopReason::kLength ? cut_turns + 1 : 0;
    auto ran = co_await RunTools(*reply, until);
    if (ran && cut_turns >= kMaxCutTurns) {
      ran = Fail(ErrorCode::kModelOutputLimit,
                 fmt::format("{} answers in a row were cut by the model's output limit in the "
                             "middle of a tool call; raise the agent's max_tokens",
                             cut_turns));
    }
    if (!ran) {
      outcome_.error = std::move(ran.error());
      co_return std::move(outcome_);
    }
  }
  outcome_.error = Error{ErrorCode::kStepLimit,
                         fmt::format("the run made {} model calls, its limit; raise the agent's "
                                     "max_steps, or send another message to go on",
                                     config_.max_steps),
                         {},
                         std::nullopt};
  co_return std::move(outcome_);
}

model::ModelRequest Engine::Request() const {
  model::ModelRequest request;
  request.model = config_.model;
  request.system = config_.system_prompt;
  request.messages = conversation_.Messages();
  request.temperature = config_.temperature;
  request.max_tokens = config_.max_tokens;
  for (const model::ToolSpec& spec : tools_.specs()) {
    if (!Names(config_.excluded_tools, spec.name)) request.tools.push_back(spec);
  }
  return request;
}

Task<Result<void>> Engine::Tell(std::vector<events::NewEvent> events) {
  for (const events::NewEvent& event : events) {
    events::Event applied;
    applied.type = event.type;
    applied.payload = event.payload;
    CAISSON_CO_TRY(conversation_.Apply(applied));
  }
  co_return co_await sink_.Emit(std::move(events));
}

// Results are addressed by id: an empty one, one that stands twice, or one of an earlier turn would
// send a result to the wrong call.
void Engine::MakeIdsUnique(model::ModelReply& reply) const {
  std::set<std::string> seen;
  for (model::ToolCall& call : reply.tool_calls) {
    while (call.id.empty() || conversation_.call_ids().contains(call.id) ||
           seen.contains(call.id)) {
      call.id = "call_" + random_.Hex(12);
    }
    seen.insert(call.id);
  }
}

Task<Result<model::ModelReply>> Engine::AskModel(Until until) {
  outcome_.message_id = MessageId::Make(clock_, random_).text();
  for (uint32_t attempt = 1;; attempt++) {
    DeltaWriter deltas(sink_, clock_, outcome_.message_id, attempt);
    model::ModelRequest request = Request();
    auto reply = co_await provider_.Complete(request, deltas, until);
    outcome_.usage.model_calls++;
    if (reply) {
      MakeIdsUnique(*reply);
      if (reply->usage.has_value()) {
        outcome_.usage.reported_model_calls++;
        Add(outcome_.usage.sum.input_tokens, reply->usage->input_tokens);
        Add(outcome_.usage.sum.output_tokens, reply->usage->output_tokens);
        Add(outcome_.usage.sum.cache_read_tokens, reply->usage->cache_read_tokens);
        Add(outcome_.usage.sum.cache_write_tokens, reply->usage->cache_write_tokens);
        Add(outcome_.usage.sum.reasoning_tokens, reply->usage->reasoning_tokens);
      }
      // The last deltas, the whole message and its calls are one step of the log.
      std::vector<events::NewEvent> told = deltas.Take();
      told.push_back(AssistantEvent(outcome_.message_id, attempt, *reply));
      for (const model::ToolCall& call : reply->tool_calls) {
        told.push_back(ToolCallEvent(call, outcome_.message_id));
      }
      if (reply->tool_calls.empty()) {
        outcome_.last_word = std::move(told);
      } else {
        CAISSON_CO_TRY(co_await Tell(std::move(told)));
      }
      co_return std::move(*reply);
    }
    model::AttemptError failed = std::move(reply.error());
    bool retry = failed.error.retryable() && attempt <= config_.max_retries;
    std::vector<events::NewEvent> told;
    if (deltas.written()) {
      told.push_back(DiscardedEvent(outcome_.message_id, attempt, failed.error.code));
    }
    Millis wait = kFirstBackOff * (1ll << std::min(attempt - 1, 10u));
    // Jitter keeps many runs from coming back at the same moment.
    wait +=
        Millis(static_cast<int64_t>(random_.Below(static_cast<uint64_t>(wait.count()) / 2 + 1)));
    wait = std::min(failed.retry_after.value_or(wait), config_.max_retry_wait);
    if (retry) told.push_back(RetryEvent(attempt, failed.error.code, wait));
    if (!told.empty()) CAISSON_CO_TRY(co_await Tell(std::move(told)));
    if (!retry) co_return Fail(std::move(failed.error));
    CAISSON_CO_TRY(co_await net::Loop::Current()->Sleep(until.Within(clock_, wait)));
  }
}

Task<Result<void>> Engine::RunTools(const model::ModelReply& reply, Until until) {
  bool cut = reply.stop_reason == model::StopReason::kLength;
  // Each result is told as it lands; the first fatal error is the run's, after all have ended.
  Result<void> first;
  net::TaskGroup group;
  for (const model::ToolCall& call : reply.tool_calls) {
    group.Start([](Task<Result<void>> task, Result<void>& into) -> Task<void> {
      auto result = co_await std::move(task);
      if (!result && into) into = std::move(result);
    }(RunTool(call, cut, until), first));
  }
  co_await group.Join();
  co_return first;
}

Task<Result<void>> Engine::RunTool(model::ToolCall call, bool cut, Until until) {
  MonoTime start = clock_.MonoNow();
  Result<void> fatal;
  ToolOutcome outcome = co_await CallTool(call, cut, fatal, until);
  if (!fatal) co_return fatal;
  // Empty results break the next request with some providers, and puzzle models.
  if (outcome.output.empty()) outcome.output = "(no output)";
  CutOutput(outcome, config_.max_output_bytes);
  auto took = std::chrono::duration_cast<Millis>(clock_.MonoNow() - start);
  std::vector<events::NewEvent> told{ToolOutcomeEvent(call, outcome, took)};
  co_return co_await Tell(std::move(told));
}

std::string Engine::AllowedTools() const {
  std::string names;
  for (const model::ToolSpec& spec : tools_.specs()) {
    if (Names(config_.excluded_tools, spec.name) || Names(config_.blocked_tools, spec.name))
      continue;
    names += names.empty() ? spec.name : ", " + spec.name;
  }
  return names;
}

Task<ToolOutcome> Engine::CallTool(const model::ToolCall& call, bool cut, Result<void>& fatal,
                                   Until until) {
  if (cut) {
    co_return ToolOutcome::Failed(
        ErrorCode::kModelOutputLimit,
        "Your answer was cut by the output limit before this call was complete, so it was not run. "
        "Make smaller calls.");
  }
  bool known =
      std::ranges::any_of(tools_.specs(), [&](auto& spec) { return spec.name == call.name; });
  if (!known || Names(config_.excluded_tools, call.name)) {
    co_return ToolOutcome::Failed(
        ErrorCode::kNotFound,
        fmt::format("There is no tool \"{}\". The tools are: {}.", call.name, AllowedTools()));
  }
  std::vector<events::NewEvent> told;
  if (Names(config_.blocked_tools, call.name)) {
    std::string why = fmt::format("The tool \"{}\" is blocked by policy.", call.name);
    told.push_back(SafetyEvent("blocked", call, why));
    fatal = co_await Tell(std::move(told));
    co_return ToolOutcome::Failed(ErrorCode::kPermissionDenied, std::move(why));
  }
  auto arguments = json::ParseObject(call.arguments.empty() ? "{}" : call.arguments);
  if (!arguments) {
    std::string why = fmt::format(
        "The arguments are not a JSON object ({}). Call again with valid "
        "arguments.",
        arguments.error().message);
    told.push_back(SafetyEvent("argument_validation_failed", call, why));
    fatal = co_await Tell(std::move(told));
    co_return ToolOutcome::Failed(ErrorCode::kInvalidJson, std::move(why));
  }
  auto outcome = co_await tools_.Call(call.id, call.name, std::move(*arguments), until);
  if (outcome) co_return std::move(*outcome);
  fatal = Fail(std::move(outcome.error()));
  co_return ToolOutcome();
}

}  // namespace caisson::agent
