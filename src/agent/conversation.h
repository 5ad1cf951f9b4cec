// The conversation of a session, as a fold of its log: what the model is shown is a pure function
// of it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "events/event.h"
#include "model/provider.h"

namespace caisson::agent {

// Takes a session's events in order; internal ones too.
class Conversation {
 public:
  // kStoreCorrupt when a payload does not fit its type.
  Result<void> Apply(const events::Event& event);

  // The messages for the next request. Every call of a tool has exactly one result behind its
  // message: one that is missing (the server ended in between) is added as interrupted, one that
  // belongs to no call is left out.
  std::vector<model::Message> Messages() const;
  // Calls without a result: what a worker that takes over has to settle.
  std::vector<model::ToolCall> OpenCalls() const;
  // Every call id that was used: a new call must not have one of them.
  const std::set<std::string>& call_ids() const { return call_ids_; }

 private:
  std::vector<model::Message> messages_;
  std::set<std::string> call_ids_;
};

// What the model is told of a call whose outcome nobody saw.
inline constexpr std::string_view kInterruptedText =
    "The server was interrupted while this call was under way. Whether it took effect is not "
    "known; "
    "it was not repeated. Check before you repeat it.";

// A message's text from its content parts.
std::string TextOfContent(const json::array& content);

}  // namespace caisson::agent
