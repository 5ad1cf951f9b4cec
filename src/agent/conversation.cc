#include "agent/conversation.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "json/reader.h"

namespace caisson::agent {

std::string TextOfContent(const json::array& content) {
  std::string text;
  for (const json::value& part : content) {
    const json::object* object = part.if_object();
    if (object == nullptr) continue;
    json::ObjectReader reader(*object);
    if (!text.empty()) text += "\n\n";
    text += reader.String("text").value_or("");
  }
  return text;
}

namespace {

Result<model::Message> ReadAssistant(const json::object& payload) {
  json::ObjectReader reader(payload);
  model::Message message;
  message.role = model::Role::kAssistant;
  if (const json::array* content = reader.Array("content")) message.text = TextOfContent(*content);
  const json::array* calls = reader.Array("tool_calls");
  for (size_t i = 0; calls != nullptr && i < calls->size(); i++) {
    const json::object* object = (*calls)[i].if_object();
    if (object == nullptr) return Fail(ErrorCode::kStoreCorrupt, "a logged tool call is no object");
    json::ObjectReader call(*object, fmt::format("tool_calls[{}]", i));
    message.tool_calls.push_back({call.RequiredString("id"), call.RequiredString("name"),
                                  call.String("arguments").value_or("")});
    CAISSON_TRY(call.Finish(json::ObjectReader::Unknown::kIgnore));
  }
  CAISSON_TRY(reader.Finish(json::ObjectReader::Unknown::kIgnore));
  return message;
}

model::Message ReadResult(const json::object& payload, bool is_error) {
  json::ObjectReader reader(payload);
  model::Message message;
  message.role = model::Role::kTool;
  message.tool_call_id = reader.String("tool_call_id").value_or("");
  message.text = reader.String("output").value_or("");
  message.is_error = is_error;
  return message;
}

}  // namespace

Result<void> Conversation::Apply(const events::Event& event) {
  using events::EventType;
  switch (event.type) {
    case EventType::kUserMessage:
    case EventType::kAssistantMessage:
    case EventType::kToolResult:
    case EventType::kToolFailed:
    case EventType::kToolInterrupted:
      break;
    default:
      return {};
  }
  auto payload = json::ParseObject(event.payload);
  if (!payload) return Fail(ErrorCode::kStoreCorrupt, "a logged payload is not JSON");
  if (event.type == EventType::kUserMessage) {
    json::ObjectReader reader(*payload);
    const json::array* content = reader.Array("content");
    model::Message message;
    if (content != nullptr) message.text = TextOfContent(*content);
    messages_.push_back(std::move(message));
  } else if (event.type == EventType::kAssistantMessage) {
    CAISSON_ASSIGN(model::Message message, ReadAssistant(*payload));
    for (const model::ToolCall& call : message.tool_calls) call_ids_.insert(call.id);
    messages_.push_back(std::move(message));
  } else {
    messages_.push_back(ReadResult(*payload, event.type != EventType::kToolResult));
  }
  return {};
}

std::vector<model::Message> Conversation::Messages() const {
  // The first result of each call counts.
  std::map<std::string, const model::Message*> results;
  for (const model::Message& message : messages_) {
    if (message.role == model::Role::kTool) results.emplace(message.tool_call_id, &message);
  }
  std::vector<model::Message> ordered;
  for (const model::Message& message : messages_) {
    if (message.role == model::Role::kTool) continue;  // placed behind its call
    // An empty turn says nothing, and providers refuse it.
    bool silent = message.text.find_first_not_of(" \t\r\n") == std::string::npos;
    if (silent && message.tool_calls.empty()) continue;
    ordered.push_back(message);
    for (const model::ToolCall& call : message.tool_calls) {
      auto result = results.find(call.id);
      if (result != results.end()) {
        ordered.push_back(*result->second);
      } else {
        ordered.push_back({model::Role::kTool, std::string(kInterruptedText), {}, call.id, true});
      }
    }
  }
  return ordered;
}

std::vector<model::ToolCall> Conversation::OpenCalls() const {
  std::set<std::string> answered;
  for (const model::Message& message : messages_) {
    if (message.role == model::Role::kTool) answered.insert(message.tool_call_id);
  }
  std::vector<model::ToolCall> open;
  for (const model::Message& message : messages_) {
    for (const model::ToolCall& call : message.tool_calls) {
      if (!answered.contains(call.id)) open.push_back(call);
    }
  }
  return open;
}

}  // namespace caisson::agent
