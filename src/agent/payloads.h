// The payloads of the events that the engine writes, in one place beside the type table.
#pragma once

#include <string>
#include <string_view>

#include "agent/tools.h"
#include "events/event.h"
#include "json/json.h"
#include "model/provider.h"

namespace caisson::agent {

struct UsageTotals;

events::NewEvent TokenEvent(std::string_view message_id, uint32_t attempt, std::string_view text);
events::NewEvent ReasoningEvent(std::string_view message_id, uint32_t attempt,
                                std::string_view text);
events::NewEvent DiscardedEvent(std::string_view message_id, uint32_t attempt, ErrorCode code);
events::NewEvent RetryEvent(uint32_t attempt, ErrorCode code, Millis wait);
events::NewEvent AssistantEvent(std::string_view message_id, uint32_t attempt,
                                const model::ModelReply& reply);
events::NewEvent ToolCallEvent(const model::ToolCall& call, std::string_view message_id);
events::NewEvent ToolOutcomeEvent(const model::ToolCall& call, const ToolOutcome& outcome,
                                  Millis took);
events::NewEvent SafetyEvent(std::string_view action, const model::ToolCall& call,
                             std::string_view why);
events::NewEvent UsageEvent(const UsageTotals& usage, std::string_view provider,
                            std::string_view model);

}  // namespace caisson::agent
