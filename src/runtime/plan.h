// What a run will use, resolved from definitions once and pinned as its manifest before the first
// model call: later edits do not reach it.
#pragma once

#include <string>

#include "agent/definition.h"
#include "agent/engine.h"
#include "base/scope.h"
#include "base/task.h"
#include "model/definition.h"
#include "sandbox/spec.h"
#include "store/store.h"

namespace caisson::runtime {

struct RunPlan {
  agent::AgentDefinition agent;
  model::ProviderDefinition provider;
  sandbox::SandboxSpec sandbox;
  agent::EngineConfig engine;
  std::string manifest;  // canonical JSON, without secrets
  std::string digest;
};

// kNotFound when a definition is gone; kInvalidArgument when nothing names a model.
Task<Result<RunPlan>> ResolveRunPlan(store::Store& store, Scope scope, std::string agent_name);

}  // namespace caisson::runtime
