// The engine: asks the model, runs the tools it calls, until it has nothing more to call.
//
// Everything it does is told through EventSink before anything depends on it: a step is durable
// when the next begins. It knows nothing of HTTP, sessions or leases.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/conversation.h"
#include "agent/tools.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/task.h"
#include "base/until.h"
#include "events/event.h"
#include "model/provider.h"

namespace caisson::agent {

// Makes events durable, in order. An error (fenced, store gone) ends the run.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual Task<Result<void>> Emit(std::vector<events::NewEvent> events) = 0;
};

struct EngineConfig {
  std::string provider_name;  // for the usage event
  std::string model;
  std::string system_prompt;
  std::optional<double> temperature;
  std::optional<int64_t> max_tokens;
  uint32_t max_steps = 100;
  uint32_t max_retries = 2;  // of one model call, on retryable errors
  Millis max_retry_wait{60'000};
  std::vector<std::string> excluded_tools;
  std::vector<std::string> blocked_tools;
  size_t max_output_bytes = 80'000;  // of one tool result shown to the model
};

// What the run consumed, for its one usage event.
struct UsageTotals {
  model::Usage sum;
  uint32_t model_calls = 0;
  uint32_t reported_model_calls = 0;
};

struct EngineOutcome {
  // The end of the run; nothing when the model said its last word.
  std::optional<Error> error;  // kCancelled when stopped
  std::string message_id;      // of the last answer
  std::string text;
  UsageTotals usage;
  // Its last word, not in the log yet: to be written with the run's end, as one step.
  std::vector<events::NewEvent> last_word;
};

// The loop of one run. All references outlive the task; everything happens on the calling loop.
class Engine {
 public:
  Engine(EngineConfig config, Conversation conversation, model::Provider& provider, Toolbox& tools,
         EventSink& sink, const Clock& clock, Random& random);
  Task<EngineOutcome> Run(Until until);

 private:
  // One model call with its retries: a whole answer, already in the log unless it is the last.
  Task<Result<model::ModelReply>> AskModel(Until until);
  Task<Result<void>> RunTools(const model::ModelReply& reply, Until until);
  Task<Result<void>> RunTool(model::ToolCall call, bool cut, Until until);
  Task<ToolOutcome> CallTool(const model::ToolCall& call, bool cut, Result<void>& fatal,
                             Until until);
  Task<Result<void>> Tell(std::vector<events::NewEvent> events);
  model::ModelRequest Request() const;
  void MakeIdsUnique(model::ModelReply& reply) const;
  std::string AllowedTools() const;

  EngineConfig config_;
  Conversation conversation_;
  model::Provider& provider_;
  Toolbox& tools_;
  EventSink& sink_;
  const Clock& clock_;
  Random& random_;
  EngineOutcome outcome_;
};

}  // namespace caisson::agent
