// An agent's definition, as an API caller stores it under /v1/agents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "json/json.h"

namespace caisson::agent {

struct AgentDefinition {
  std::string description;
  std::string system_prompt;
  std::string provider;  // name of a provider's definition
  std::string model;     // empty: the provider's
  std::optional<double> temperature;
  std::optional<int64_t> max_tokens;  // of one answer of the model
  uint32_t max_steps = 100;           // model calls in one run
  Millis timeout{3'600'000};          // of a whole run
  std::string sandbox_profile = "default";
  std::vector<std::string> excluded_tools;  // not shown to the model
  std::vector<std::string> blocked_tools;   // denied at the call
  // Fields that are known and stored, whose feature is not built yet: such an agent is refused when
  // a session starts, with their names (kFeatureNotBuilt).
  std::vector<std::string> unbuilt_features;
};

// Reads and checks; kInvalidArgument names the field.
Result<AgentDefinition> ParseAgent(const json::object& definition);

}  // namespace caisson::agent
