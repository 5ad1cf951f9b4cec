#include "runtime/plan.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "json/json.h"
#include "sandbox/manager.h"

namespace caisson::runtime {
namespace {

json::object Reference(const store::DefinitionRow& row) {
  return {{"name", row.name}, {"revision", row.revision}, {"digest", row.digest}};
}

}  // namespace

Task<Result<RunPlan>> ResolveRunPlan(store::Store& store, Scope scope, std::string agent_name) {
  RunPlan plan;
  CAISSON_CO_ASSIGN(store::DefinitionRow agent_row,
                    co_await store.GetDefinition(scope, store::DefinitionKind::kAgent, agent_name));
  CAISSON_CO_ASSIGN(json::object agent_json, json::ParseObject(agent_row.json));
  CAISSON_CO_ASSIGN(plan.agent, agent::ParseAgent(agent_json));
  CAISSON_CO_ASSIGN(
      store::DefinitionRow provider_row,
      co_await store.GetDefinition(scope, store::DefinitionKind::kProvider, plan.agent.provider));
  CAISSON_CO_ASSIGN(json::object provider_json, json::ParseObject(provider_row.json));
  CAISSON_CO_ASSIGN(plan.provider, model::ParseProvider(provider_json));
  CAISSON_CO_ASSIGN(plan.sandbox, sandbox::BuiltInProfile(plan.agent.sandbox_profile));

  agent::EngineConfig& engine = plan.engine;
  engine.provider_name = provider_row.name;
  engine.model = plan.agent.model.empty() ? plan.provider.model : plan.agent.model;
  if (engine.model.empty()) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   fmt::format("neither agent \"{}\" nor provider \"{}\" names a model",
                               agent_row.name, provider_row.name));
  }
  engine.system_prompt = plan.agent.system_prompt;
  engine.temperature = plan.agent.temperature;
  engine.max_tokens = plan.agent.max_tokens;
  engine.max_steps = plan.agent.max_steps;
  engine.max_retries = plan.provider.max_retries;
  engine.excluded_tools = plan.agent.excluded_tools;
  engine.blocked_tools = plan.agent.blocked_tools;

  json::object manifest{{"agent", Reference(agent_row)},
                        {"definition", std::move(agent_json)},
                        {"provider", Reference(provider_row)},
                        {"protocol_definition", std::move(provider_json)},
                        {"model", engine.model}};
  manifest["sandbox"] = sandbox::SpecToJson(plan.sandbox);
  plan.manifest = json::SerializeCanonical(std::move(manifest));
  plan.digest = Sha256Hex(plan.manifest);
  co_return plan;
}

}  // namespace caisson::runtime
