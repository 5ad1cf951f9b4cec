#include "model/openai.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "json/reader.h"
#include "model/wire.h"

namespace caisson::model {
namespace {

json::value ToJson(const Message& message) {
  switch (message.role) {
    case Role::kUser:
      return json::object{{"role", "user"}, {"content", message.text}};
    case Role::kTool:
      return json::object{
          {"role", "tool"}, {"tool_call_id", message.tool_call_id}, {"content", message.text}};
    case Role::kAssistant:
      break;
  }
  json::object object{{"role", "assistant"}};
  // Some servers refuse an empty text, and an empty list of calls.
  if (!message.text.empty() || message.tool_calls.empty()) object["content"] = message.text;
  json::array calls;
  for (const ToolCall& call : message.tool_calls) {
    calls.push_back(
        json::object{{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) object["tool_calls"] = std::move(calls);
  return object;
}

Result<std::string> RequestBody(const ModelRequest& request) {
  json::array messages;
  if (!request.system.empty()) {
    messages.push_back(json::object{{"role", "system"}, {"content", request.system}});
  }
  for (const Message& message : request.messages) messages.push_back(ToJson(message));
  json::object body{{"model", request.model},
                    {"messages", std::move(messages)},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  json::array tools;
  for (const ToolSpec& tool : request.tools) {
    CAISSON_ASSIGN(json::value parameters, json::Parse(tool.parameters));
    tools.push_back(json::object{{"type", "function"},
                                 {"function",
                                  {{"name", tool.name},
                                   {"description", tool.description},
                                   {"parameters", std::move(parameters)}}}});
  }
  if (!tools.empty()) body["tools"] = std::move(tools);
  if (request.temperature.has_value()) body["temperature"] = *request.temperature;
  if (request.max_tokens.has_value()) body["max_completion_tokens"] = *request.max_tokens;
  return json::Serialize(body);
}

AttemptError Unreadable(std::string what) {
  return ToAttempt({ErrorCode::kModelProtocol,
                    "the model provider's answer cannot be read: " + what,
                    {},
                    std::nullopt});
}

// Puts the chunks together.
class Assembler {
 public:
  bool done() const { return done_; }

  std::expected<Added, AttemptError> Take(const http::ServerSentEvent& event) {
    if (event.data == "[DONE]") {
      done_ = true;
      return Added();
    }
    auto chunk = json::ParseObject(event.data);
    if (!chunk) return std::unexpected(Unreadable(chunk.error().message));
    if (const json::value* error = chunk->if_contains("error");
        error != nullptr && !error->is_null()) {
      return std::unexpected(StreamError(*error));
    }
    json::ObjectReader reader(*chunk);
    if (auto model = reader.String("model")) reply_.model = *model;
    if (const json::object* usage = reader.Object("usage")) TakeUsage(*usage);
    Added added;
    const json::array* choices = reader.Array("choices");
    if (choices == nullptr || choices->empty() || !(*choices)[0].is_object()) return added;
    json::ObjectReader choice((*choices)[0].get_object());
    if (const json::object* delta = choice.Object("delta")) TakeDelta(*delta, added);
    if (auto reason = choice.String("finish_reason")) finish_reason_ = *reason;
    reply_.text += added.text;
    return added;
  }

  // The whole reply. Without a finish reason the stream was cut, however cleanly it closed.
  AttemptResult Finish() {
    if (finish_reason_.empty()) {
      return std::unexpected(ToAttempt({ErrorCode::kModelUnavailable,
                                        "the model provider's answer ended in the middle",
                                        {},
                                        true}));
    }
    for (auto& [index, call] : calls_) {
      if (call.id.empty()) call.id = fmt::format("call_{}", index);
      reply_.tool_calls.push_back(std::move(call));
    }
    reply_.stop_reason = Reason();
    return std::move(reply_);
  }

 private:
  static AttemptError StreamError(const json::value& error) {
    std::string type;
    std::string message;
    if (const json::object* object = error.if_object()) {
      json::ObjectReader reader(*object);
      type = reader.String("type").value_or("");
      if (auto code = reader.String("code")) type += " " + *code;
      message = reader.String("message").value_or("");
    } else if (error.is_string()) {
      message = error.get_string();
    }
    // In the middle of a stream there is no status: what is not known to be the request's fault
    // is taken for the provider's.
    bool known = type.find("invalid_request") != type.npos;
    return StatusError(known ? 400 : 500, type, message, std::nullopt);
  }

  void TakeUsage(const json::object& object) {
    json::ObjectReader reader(object);
    Usage usage;
    usage.input_tokens = reader.Int("prompt_tokens", 0, INT64_MAX);
    usage.output_tokens = reader.Int("completion_tokens", 0, INT64_MAX);
    if (const json::object* details = reader.Object("prompt_tokens_details")) {
      usage.cache_read_tokens = json::ObjectReader(*details).Int("cached_tokens", 0, INT64_MAX);
    }
    if (const json::object* details = reader.Object("completion_tokens_details")) {
      usage.reasoning_tokens = json::ObjectReader(*details).Int("reasoning_tokens", 0, INT64_MAX);
    }
    reply_.usage = usage;
  }

  void TakeDelta(const json::object& delta, Added& added) {
    json::ObjectReader reader(delta);
    added.text = reader.String("content").value_or("");
    refused_ = refused_ || reader.Has("refusal");
    if (auto refusal = reader.String("refusal")) added.text += *refusal;
    added.reasoning =
        reader.String("reasoning_content").value_or(reader.String("reasoning").value_or(""));
    const json::array* calls = reader.Array("tool_calls");
    if (calls == nullptr) return;
    for (const json::value& item : *calls) {
      if (item.is_object()) TakeCall(item.get_object());
    }
  }

  void TakeCall(const json::object& object) {
    json::ObjectReader reader(object);
    std::string id = reader.String("id").value_or("");
    // Compatible servers leave the index out: an id of its own starts a call then.
    int64_t index = last_index_;
    if (auto given = reader.Int("index", 0, 10'000)) {
      index = *given;
    } else if (!id.empty() && (calls_.empty() || calls_[last_index_].id != id)) {
      index = calls_.empty() ? 0 : calls_.rbegin()->first + 1;
    }
    last_index_ = index;
    ToolCall& call = calls_[index];
    if (!id.empty()) call.id = id;
    const json::object* function = reader.Object("function");
    if (function == nullptr) return;
    json::ObjectReader function_reader(*function);
    if (auto name = function_reader.String("name"); name.has_value() && call.name.empty()) {
      call.name = *name;
    }
    call.arguments += function_reader.String("arguments").value_or("");
  }

  StopReason Reason() const {
    if (refused_ || finish_reason_ == "content_filter") return StopReason::kRefused;
    if (finish_reason_ == "length") return StopReason::kLength;
    // Some servers say "stop" though they made calls.
    if (!reply_.tool_calls.empty()) return StopReason::kToolCalls;
    return finish_reason_ == "stop" ? StopReason::kEnd : StopReason::kOther;
  }

  ModelReply reply_;
  std::map<int64_t, ToolCall> calls_;
  int64_t last_index_ = 0;
  std::string finish_reason_;
  bool refused_ = false;
  bool done_ = false;
};

class OpenAiProvider final : public Provider {
 public:
  OpenAiProvider(ProviderDefinition definition, std::string key, http::Connector& connector,
                 const Clock& clock)
      : definition_(std::move(definition)),
        key_(std::move(key)),
        connector_(connector),
        clock_(clock) {}

  Task<AttemptResult> Complete(const ModelRequest& request, DeltaSink& sink, Until until) override {
    auto body = RequestBody(request);
    if (!body) co_return std::unexpected(ToAttempt(std::move(body.error())));
    http::Headers headers;
    if (!key_.empty()) headers.Add("Authorization", "Bearer " + key_);
    auto stream = co_await PostForEvents(connector_, clock_, definition_, "/chat/completions",
                                         std::move(headers), std::move(*body), std::move(until));
    if (!stream) co_return std::unexpected(std::move(stream.error()));
    co_return co_await Assemble(*stream, Assembler(), sink);
  }

 private:
  ProviderDefinition definition_;
  std::string key_;
  http::Connector& connector_;
  const Clock& clock_;
};

}  // namespace

std::unique_ptr<Provider> MakeOpenAiProvider(const ProviderDefinition& definition, std::string key,
                                             http::Connector& connector, const Clock& clock) {
  return std::make_unique<OpenAiProvider>(definition, std::move(key), connector, clock);
}

}  // namespace caisson::model
