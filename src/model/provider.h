// Model providers behind one interface: a conversation and tools in, a stream of deltas and one
// whole message out.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "http/connector.h"
#include "model/definition.h"

namespace caisson::model {

enum class Role : uint8_t { kUser, kAssistant, kTool };

struct ToolCall {
  std::string id;  // unique in the conversation; made by us where the model gave none
  std::string name;
  std::string arguments;  // JSON text as the model wrote it; may be malformed
};

struct Message {
  Role role = Role::kUser;
  std::string text;
  std::vector<ToolCall> tool_calls;  // kAssistant
  std::string tool_call_id;          // kTool: whose result this is
  bool is_error = false;             // kTool
};

struct ToolSpec {
  std::string name;
  std::string description;
  std::string parameters;  // JSON Schema of an object, as text
};

struct ModelRequest {
  std::string model;
  std::string system;
  std::vector<Message> messages;
  std::vector<ToolSpec> tools;
  std::optional<double> temperature;
  std::optional<int64_t> max_tokens;
};

// As the provider reported it; what it did not report is absent, never estimated.
struct Usage {
  std::optional<int64_t> input_tokens;
  std::optional<int64_t> output_tokens;
  std::optional<int64_t> cache_read_tokens;
  std::optional<int64_t> cache_write_tokens;
  std::optional<int64_t> reasoning_tokens;
};

enum class StopReason : uint8_t { kEnd, kToolCalls, kLength, kRefused, kOther };
std::string_view NameOf(StopReason reason);  // "end", "tool_calls", "length", "refused", "other"

struct ModelReply {
  std::string text;
  std::vector<ToolCall> tool_calls;
  StopReason stop_reason = StopReason::kOther;
  std::optional<Usage> usage;
  std::string model;  // as the provider named it
};

// Why one attempt failed, and when the provider wants to be asked again.
struct AttemptError {
  Error error;
  std::optional<Millis> retry_after;
};
using AttemptResult = std::expected<ModelReply, AttemptError>;

// Gets pieces of the answer as they come; an error from it ends the attempt.
class DeltaSink {
 public:
  virtual ~DeltaSink() = default;
  virtual Task<Result<void>> OnText(std::string_view text) = 0;
  virtual Task<Result<void>> OnReasoning(std::string_view text) = 0;
};

// One provider's definition, ready for use. Belongs to one loop.
class Provider {
 public:
  virtual ~Provider() = default;
  // One attempt: no retries inside. What was streamed before an error must be discarded by the
  // caller: an incomplete answer is never a reply.
  virtual Task<AttemptResult> Complete(const ModelRequest& request, DeltaSink& sink,
                                       Until until) = 0;
};

// `key` is the value of the definition's environment variable, empty for none. `connector` outlives
// it.
std::unique_ptr<Provider> MakeProvider(const ProviderDefinition& definition, std::string key,
                                       http::Connector& connector, const Clock& clock);

}  // namespace caisson::model
