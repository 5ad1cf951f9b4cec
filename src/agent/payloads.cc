#include "agent/payloads.h"

#include "agent/engine.h"

namespace caisson::agent {
namespace {

using events::EventType;
using events::NewEvent;

NewEvent Make(EventType type, const json::object& payload) {
  return {type, json::Serialize(payload)};
}

}  // namespace

NewEvent TokenEvent(std::string_view message_id, uint32_t attempt, std::string_view text) {
  return Make(EventType::kToken,
              {{"message_id", message_id}, {"attempt", attempt}, {"content", text}});
}
NewEvent ReasoningEvent(std::string_view message_id, uint32_t attempt, std::string_view text) {
  return Make(EventType::kReasoning,
              {{"message_id", message_id}, {"attempt", attempt}, {"content", text}});
}
NewEvent DiscardedEvent(std::string_view message_id, uint32_t attempt, ErrorCode code) {
  return Make(EventType::kMessageDiscarded,
              {{"message_id", message_id}, {"attempt", attempt}, {"code", InfoOf(code).wire}});
}
NewEvent RetryEvent(uint32_t attempt, ErrorCode code, Millis wait) {
  return Make(EventType::kModelRetry,
              {{"attempt", attempt}, {"code", InfoOf(code).wire}, {"wait_ms", wait.count()}});
}

NewEvent AssistantEvent(std::string_view message_id, uint32_t attempt,
                        const model::ModelReply& reply) {
  json::array content;
  if (!reply.text.empty()) content.push_back(json::object{{"type", "text"}, {"text", reply.text}});
  json::array calls;
  for (const model::ToolCall& call : reply.tool_calls) {
    calls.push_back(
        json::object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return Make(EventType::kAssistantMessage, {{"message_id", message_id},
                                             {"attempt", attempt},
                                             {"content", std::move(content)},
                                             {"tool_calls", std::move(calls)},
                                             {"stop_reason", NameOf(reply.stop_reason)},
                                             {"model", reply.model}});
}

NewEvent ToolCallEvent(const model::ToolCall& call, std::string_view message_id) {
  // Malformed arguments are in the assistant's message as text; here they are an empty object.
  json::object args = json::ParseObject(call.arguments).value_or(json::object());
  return Make(EventType::kToolCall, {{"id", call.id},
                                     {"name", call.name},
                                     {"args", std::move(args)},
                                     {"message_id", message_id}});
}

NewEvent ToolOutcomeEvent(const model::ToolCall& call, const ToolOutcome& outcome, Millis took) {
  json::object payload{{"tool_call_id", call.id},
                       {"name", call.name},
                       {"output", outcome.output},
                       {"duration_ms", took.count()},
                       {"truncated", outcome.truncated}};
  if (outcome.exit_code.has_value()) payload["exit_code"] = *outcome.exit_code;
  if (!outcome.reason.empty()) payload["reason"] = outcome.reason;
  if (!outcome.error.has_value()) return Make(EventType::kToolResult, payload);
  payload["code"] = InfoOf(*outcome.error).wire;
  return Make(EventType::kToolFailed, payload);
}

NewEvent SafetyEvent(std::string_view action, const model::ToolCall& call, std::string_view why) {
  return Make(
      EventType::kToolSafety,
      {{"action", action}, {"tool_name", call.name}, {"tool_call_id", call.id}, {"message", why}});
}

NewEvent UsageEvent(const UsageTotals& usage, std::string_view provider, std::string_view model) {
  bool complete = usage.reported_model_calls == usage.model_calls;
  std::string_view status = usage.reported_model_calls == 0 ? "unavailable"
                            : complete                      ? "complete"
                                                            : "partial";
  json::object payload{{"source", "provider"},
                       {"status", status},
                       {"model_calls", usage.model_calls},
                       {"reported_model_calls", usage.reported_model_calls},
                       {"unreported_model_calls", usage.model_calls - usage.reported_model_calls},
                       {"provider", provider},
                       {"model", model},
                       {"by_model", json::array()}};
  auto add = [&](std::string_view name, const std::optional<int64_t>& number) {
    if (number.has_value()) payload[name] = *number;
  };
  add("input_tokens", usage.sum.input_tokens);
  add("output_tokens", usage.sum.output_tokens);
  add("cache_read_tokens", usage.sum.cache_read_tokens);
  add("cache_write_tokens", usage.sum.cache_write_tokens);
  add("reasoning_tokens", usage.sum.reasoning_tokens);
  if (usage.sum.input_tokens.has_value() && usage.sum.output_tokens.has_value()) {
    payload["total_tokens"] = *usage.sum.input_tokens + *usage.sum.output_tokens;
  }
  json::object one{{"model", model}, {"model_calls", usage.model_calls}};
  payload["by_model"].as_array().push_back(std::move(one));
  return Make(EventType::kUsage, payload);
}

}  // namespace caisson::agent
