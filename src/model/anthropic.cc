#include "model/anthropic.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "json/reader.h"
#include "model/wire.h"

namespace caisson::model {
namespace {

constexpr int64_t kDefaultMaxTokens = 8192;  // the protocol requires a number

json::object TextBlock(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

// The blocks of one message. A malformed call goes back as an empty input: the model is told what
// was wrong with it by the call's result.
json::array Blocks(const Message& message) {
  json::array blocks;
  if (message.role == Role::kTool) {
    json::object block{
        {"type", "tool_result"}, {"tool_use_id", message.tool_call_id}, {"content", message.text}};
    if (message.is_error) block["is_error"] = true;
    blocks.push_back(std::move(block));
    return blocks;
  }
  if (!message.text.empty()) blocks.push_back(TextBlock(message.text));
  for (const ToolCall& call : message.tool_calls) {
    json::object input = json::ParseObject(call.arguments).value_or(json::object());
    blocks.push_back(json::object{
        {"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
  }
  return blocks;
}

// Results of tools belong into the user's turn, before its text; turns must alternate.
json::array ToMessages(const std::vector<Message>& messages) {
  json::array turns;
  for (const Message& message : messages) {
    std::string_view role = message.role == Role::kAssistant ? "assistant" : "user";
    json::array blocks = Blocks(message);
    if (blocks.empty()) continue;
    if (!turns.empty() && turns.back().as_object()["role"].as_string() == role) {
      json::array& content = turns.back().as_object()["content"].as_array();
      content.insert(content.end(), blocks.begin(), blocks.end());
    } else {
      turns.push_back(json::object{{"role", role}, {"content", std::move(blocks)}});
    }
  }
  return turns;
}

Result<std::string> RequestBody(const ModelRequest& request) {
  json::object body{{"model", request.model},
                    {"max_tokens", request.max_tokens.value_or(kDefaultMaxTokens)},
                    {"messages", ToMessages(request.messages)},
                    {"stream", true}};
  if (!request.system.empty()) body["system"] = request.system;
  if (request.temperature.has_value()) body["temperature"] = *request.temperature;
  json::array tools;
  for (const ToolSpec& tool : request.tools) {
    CAISSON_ASSIGN(json::value schema, json::Parse(tool.parameters));
    tools.push_back(json::object{{"name", tool.name},
                                 {"description", tool.description},
                                 {"input_schema", std::move(schema)}});
  }
  if (!tools.empty()) body["tools"] = std::move(tools);
  return json::Serialize(body);
}

class Assembler {
 public:
  std::expected<Added, AttemptError> Take(const http::ServerSentEvent& event) {
    Added added;
    if (event.event.empty() || event.event == "ping") return added;
    auto data = json::ParseObject(event.data);
    if (!data) {
      return std::unexpected(
          ToAttempt({ErrorCode::kModelProtocol,
                     "the model provider's answer cannot be read: " + data.error().message,
                     {},
                     std::nullopt}));
    }
    json::ObjectReader reader(*data);
    if (event.event == "error") {
      const json::object* error = reader.Object("error");
      json::ObjectReader fields(error == nullptr ? *data : *error);
      std::string type = fields.String("type").value_or("");
      bool own_fault = type == "invalid_request_error" || type == "not_found_error";
      return std::unexpected(StatusError(own_fault ? 400 : 500, type,
                                         fields.String("message").value_or(""), std::nullopt));
    }
    if (event.event == "message_start") TakeStart(reader);
    if (event.event == "content_block_start") TakeBlock(reader, added);
    if (event.event == "content_block_delta") TakeDelta(reader, added);
    if (event.event == "message_delta") TakeMessageDelta(reader);
    if (event.event == "message_stop") stopped_ = true;
    reply_.text += added.text;
    return added;
  }

  bool done() const { return stopped_; }

  AttemptResult Finish() {
    if (!stopped_ || stop_reason_.empty()) {
      return std::unexpected(ToAttempt({ErrorCode::kModelUnavailable,
                                        "the model provider's answer ended in the middle",
                                        {},
                                        true}));
    }
    if (stop_reason_ == "model_context_window_exceeded") {
      return std::unexpected(StatusError(400, stop_reason_, "", std::nullopt));
    }
    for (auto& [index, call] : calls_) {
      if (call.arguments.empty()) call.arguments = "{}";
      reply_.tool_calls.push_back(std::move(call));
    }
    reply_.stop_reason = Reason();
    if (has_usage_) reply_.usage = usage_;
    return std::move(reply_);
  }

 private:
  void TakeStart(json::ObjectReader& reader) {
    const json::object* message = reader.Object("message");
    if (message == nullptr) return;
    json::ObjectReader fields(*message);
    reply_.model = fields.String("model").value_or("");
    if (const json::object* usage = fields.Object("usage")) TakeUsage(*usage);
  }

  void TakeBlock(json::ObjectReader& reader, Added& added) {
    int64_t index = reader.Int("index", 0, 100'000).value_or(0);
    const json::object* block = reader.Object("content_block");
    if (block == nullptr) return;
    json::ObjectReader fields(*block);
    std::string type = fields.String("type").value_or("");
    if (type == "text") added.text = fields.String("text").value_or("");
    if (type == "thinking") added.reasoning = fields.String("thinking").value_or("");
    if (type == "tool_use") {
      calls_[index] = {fields.String("id").value_or(""), fields.String("name").value_or(""), ""};
    }
  }

  void TakeDelta(json::ObjectReader& reader, Added& added) {
    int64_t index = reader.Int("index", 0, 100'000).value_or(0);
    const json::object* delta = reader.Object("delta");
    if (delta == nullptr) return;
    json::ObjectReader fields(*delta);
    added.text = fields.String("text").value_or("");
    added.reasoning = fields.String("thinking").value_or("");
    auto call = calls_.find(index);
    if (call != calls_.end()) call->second.arguments += fields.String("partial_json").value_or("");
  }

  void TakeMessageDelta(json::ObjectReader& reader) {
    if (const json::object* delta = reader.Object("delta")) {
      stop_reason_ = json::ObjectReader(*delta).String("stop_reason").value_or(stop_reason_);
    }
    if (const json::object* usage = reader.Object("usage")) TakeUsage(*usage);
  }

  // Cumulative: a later number replaces an earlier one, an absent one leaves it.
  void TakeUsage(const json::object& object) {
    json::ObjectReader reader(object);
    has_usage_ = true;
    auto take = [&](std::string_view name, std::optional<int64_t>& into) {
      if (auto number = reader.Int(name, 0, INT64_MAX)) into = number;
    };
    std::optional<int64_t> uncached;
    take("input_tokens", uncached);
    take("output_tokens", usage_.output_tokens);
    take("cache_read_input_tokens", usage_.cache_read_tokens);
    take("cache_creation_input_tokens", usage_.cache_write_tokens);
    if (uncached.has_value()) uncached_input_ = *uncached;
    // The protocol's input_tokens leaves out what the cache served; ours is the whole input.
    usage_.input_tokens = uncached_input_ + usage_.cache_read_tokens.value_or(0) +
                          usage_.cache_write_tokens.value_or(0);
  }

  StopReason Reason() const {
    if (stop_reason_ == "max_tokens") return StopReason::kLength;
    if (stop_reason_ == "refusal") return StopReason::kRefused;
    if (!reply_.tool_calls.empty()) return StopReason::kToolCalls;
    if (stop_reason_ == "end_turn" || stop_reason_ == "stop_sequence") return StopReason::kEnd;
    return StopReason::kOther;
  }

  ModelReply reply_;
  std::map<int64_t, ToolCall> calls_;
  Usage usage_;
  int64_t uncached_input_ = 0;
  bool has_usage_ = false;
  std::string stop_reason_;
  bool stopped_ = false;
};

class AnthropicProvider final : public Provider {
 public:
  AnthropicProvider(ProviderDefinition definition, std::string key, http::Connector& connector,
                    const Clock& clock)
      : definition_(std::move(definition)),
        key_(std::move(key)),
        connector_(connector),
        clock_(clock) {}

  Task<AttemptResult> Complete(const ModelRequest& request, DeltaSink& sink, Until until) override {
    auto body = RequestBody(request);
    if (!body) co_return std::unexpected(ToAttempt(std::move(body.error())));
    http::Headers headers{{"anthropic-version", "2023-06-01"}};
    if (!key_.empty()) headers.Add("x-api-key", key_);
    auto stream = co_await PostForEvents(connector_, clock_, definition_, "/v1/messages",
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

std::unique_ptr<Provider> MakeAnthropicProvider(const ProviderDefinition& definition,
                                                std::string key, http::Connector& connector,
                                                const Clock& clock) {
  return std::make_unique<AnthropicProvider>(definition, std::move(key), connector, clock);
}

}  // namespace caisson::model
