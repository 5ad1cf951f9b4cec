#include "agent/definition.h"

#include <array>
#include <string_view>

#include "json/reader.h"

namespace caisson::agent {
namespace {

// Asked for by definitions today, built later: field and JSON type.
struct Unbuilt {
  std::string_view field;
  bool is_array;
};
constexpr std::array kUnbuilt{
    Unbuilt{"tools", true},           Unbuilt{"skills", true},
    Unbuilt{"memory", true},          Unbuilt{"subagents", true},
    Unbuilt{"middleware", true},      Unbuilt{"permissions", true},
    Unbuilt{"interrupt_on", false},   Unbuilt{"mcp", false},
    Unbuilt{"context_policy", false}, Unbuilt{"response_format", false},
};

}  // namespace

Result<AgentDefinition> ParseAgent(const json::object& definition) {
  json::ObjectReader reader(definition);
  AgentDefinition agent;
  agent.description = reader.String("description").value_or("");
  agent.system_prompt = reader.String("system_prompt").value_or("");
  agent.provider = reader.RequiredString("provider", 100);
  agent.model = reader.String("model").value_or("");
  agent.temperature = reader.Number("temperature", 0, 2);
  agent.max_tokens = reader.Int("max_tokens", 1, 10'000'000);
  agent.max_steps =
      static_cast<uint32_t>(reader.Int("max_steps", 1, 10'000).value_or(agent.max_steps));
  agent.timeout =
      Millis(reader.Int("timeout_ms", 1'000, 7ll * 24 * 3'600'000).value_or(agent.timeout.count()));
  agent.sandbox_profile = reader.String("sandbox_profile").value_or(agent.sandbox_profile);
  agent.excluded_tools = reader.Strings("excluded_tools");
  agent.blocked_tools = reader.Strings("blocked_tools");
  for (const Unbuilt& feature : kUnbuilt) {
    const json::array* items = feature.is_array ? reader.Array(feature.field) : nullptr;
    const json::object* members = feature.is_array ? nullptr : reader.Object(feature.field);
    // An empty one asks for nothing.
    bool used = (items != nullptr && !items->empty()) || (members != nullptr && !members->empty());
    if (used) agent.unbuilt_features.emplace_back(feature.field);
  }
  CAISSON_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  return agent;
}

}  // namespace caisson::agent
