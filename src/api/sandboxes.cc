// Sandboxes: create, explain, list, show, delete.
#include <fmt/format.h>

#include <array>

#include "api/guest_calls.h"
#include "api/resources.h"
#include "api/router.h"
#include "json/reader.h"
#include "sandbox/spec_json.h"

namespace caisson::api {
namespace {

constexpr Millis kCreateTime{30'000};
constexpr Millis kDeleteTime{20'000};

Task<Result<Reply>> Create(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  CAISSON_CO_ASSIGN(sandbox::SandboxSpec spec, sandbox::ReadSpec(reader));
  auto session = reader.String("session_id");
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  store::SandboxRow row;
  if (session.has_value()) {
    CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(*session));
    CAISSON_CO_ASSIGN(row,
                      co_await sandboxes->ForSession(context.scope, std::move(id), std::move(spec),
                                                     Within(context, kCreateTime)));
  } else {
    store::Idempotency key = ReadIdempotency(context, json::SerializeCanonical(std::move(body)));
    CAISSON_CO_ASSIGN(
        row, co_await sandboxes->Create(context.scope, {{}, std::move(spec), true}, std::move(key),
                                        Within(context, kCreateTime)));
  }
  co_return Reply::Json(201, ToJson(row));
}

// The decision of Create, without acting. What is no spec at all is an error here, too.
Task<Result<Reply>> Explain(Context& context) {
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  Result<sandbox::SandboxSpec> spec = sandbox::ReadSpec(reader);
  (void)reader.String("session_id");
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  if (spec) CAISSON_CO_TRY(ValidateSpec(*spec));
  if (!spec && spec.error().code == ErrorCode::kInvalidArgument) co_return Fail(spec.error());
  Result<void> decision;
  std::string isolation;
  Result<sandbox::Manager*> sandboxes = Sandboxes(context);
  if (!spec) {
    decision = Fail(spec.error());
  } else if (!sandboxes) {
    decision = Fail(sandboxes.error());
  } else {
    decision = (*sandboxes)->Check(*spec);
    isolation = NameOf((*sandboxes)->declaration().isolation);
  }
  if (!decision) {
    const Error& why = decision.error();
    co_return Reply::Json(200, {{"allowed", false}, {"code", why.wire()}, {"detail", why.message}});
  }
  co_return Reply::Json(200, {{"allowed", true},
                              {"backend", spec->backend},
                              {"profile", spec->profile},
                              {"isolation", isolation}});
}

Task<Result<Reply>> List(Context& context) {
  CAISSON_CO_ASSIGN(store::PageRequest page, ReadPage(context));
  CAISSON_CO_ASSIGN(auto rows,
                    co_await context.services.store.ListSandboxes(context.scope, std::move(page)));
  json::array items;
  for (const auto& row : rows.rows) items.push_back(ToJson(row));
  co_return Reply::Json(200, {{"items", std::move(items)}, {"next_cursor", rows.next_cursor}});
}

Task<Result<Reply>> Show(Context& context) {
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::SandboxRow row,
                    co_await context.services.store.GetSandbox(context.scope, std::move(id)));
  co_return Reply::Json(200, ToJson(row));
}

// Beside each number the limit of the spec; null is what this host does not tell.
Task<Result<Reply>> ShowUsage(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::SandboxRow row,
                    co_await context.services.store.GetSandbox(context.scope, std::move(id)));
  CAISSON_CO_ASSIGN(sandbox::SandboxSpec spec, sandbox::SpecFromLedger(row.spec));
  CAISSON_CO_ASSIGN(sandbox::Usage usage, co_await sandboxes->MeasureUsage(
                                              std::move(row), Within(context, kGuestCallTime)));
  auto number = [](const std::optional<uint64_t>& value) {
    return value.has_value() ? json::value(*value) : json::value();
  };
  std::optional<uint64_t> cpu_ms;
  if (usage.cpu.has_value()) cpu_ms = static_cast<uint64_t>(usage.cpu->count() / 1000);
  co_return Reply::Json(200, {{"cpu_ms", number(cpu_ms)},
                              {"cpus", spec.resources.cpus},
                              {"memory_bytes", number(usage.memory_bytes)},
                              {"memory_peak_bytes", number(usage.memory_peak_bytes)},
                              {"memory_limit_bytes", spec.resources.memory_bytes},
                              {"pids", number(usage.pids)},
                              {"pids_limit", spec.resources.pids},
                              {"disk_bytes", number(usage.disk_bytes)},
                              {"disk_limit_bytes", spec.resources.disk_bytes}});
}

Task<Result<Reply>> Delete(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  std::optional<uint64_t> generation;
  if (context.request.Query("generation").has_value()) {
    CAISSON_CO_ASSIGN(generation, ReadNumber(context, "generation", 0));
  }
  CAISSON_CO_ASSIGN(store::SandboxRow row,
                    co_await sandboxes->Delete(context.scope, std::move(id), generation,
                                               Within(context, kDeleteTime)));
  co_return Reply::Json(200, ToJson(row));
}

std::string_view NameOf(sandbox::Manager::ReleaseStatus status) {
  using Status = sandbox::Manager::ReleaseStatus;
  switch (status) {
    case Status::kComplete:
      return "complete";
    case Status::kPending:
      return "pending";
    case Status::kBusy:
      return "busy";
    case Status::kAbsent:
      return "absent";
  }
  return "";
}

Task<Result<Reply>> Release(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  bool idle_only = reader.Bool("idle_only").value_or(true);
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  CAISSON_CO_ASSIGN(sandbox::Manager::Released released,
                    co_await sandboxes->Release(context.scope, std::move(id), idle_only,
                                                Within(context, kDeleteTime)));
  json::object answer{{"status", NameOf(released.status)}};
  if (released.row.has_value()) answer["sandbox"] = ToJson(*released.row);
  co_return Reply::Json(200, answer);
}

constexpr std::string_view kReleaseSchema =
    R"({"type":"object","properties":{"idle_only":{"type":"boolean"}}})";
constexpr std::string_view kCreateSchema =
    R"({"type":"object","properties":{"profile":{"type":"string"},
"session_id":{"type":"string"},"network":{"enum":["closed","allow_list","named","unrestricted"]},
"ttl_ms":{"type":"integer"},"idle_ms":{"type":"integer"},"max_exec_ms":{"type":"integer"},
"work_dir":{"type":"string"},"min_isolation":{"type":"string"},"env":{"type":"object"},
"writable_paths":{"type":"array","items":{"type":"string"}},
"read_only_sets":{"type":"array","items":{"type":"string"}},
"resources":{"type":"object","properties":{
"cpus":{"type":"number"},"memory_bytes":{"type":"integer"},"pids":{"type":"integer"},
"disk_bytes":{"type":"integer"},"open_files":{"type":"integer"}}},
"transfer":{"type":"object","properties":{"in":{"type":"object"},"out":{"type":"object"}}}}})";
constexpr std::array kSchemas{
    Schema{"Sandbox",
           "id:string backend:string profile:string status:SandboxStatus generation:int "
           "created_at:time updated_at:time expires_at:time session_id?:string "
           "status_reason?:string spec:SandboxSpec"},
    Schema{"SandboxSpec",
           "backend:string profile:string work_dir:string network:string min_isolation:string "
           "ttl_ms:int "
           "idle_ms:int max_exec_ms:int writable_paths:[string] read_only_sets:[string] "
           "resources:SandboxResources transfer:SandboxTransfer"},
    Schema{"SandboxDecision",
           "allowed:bool backend?:string profile?:string isolation?:string code?:string "
           "detail?:string"},
    Schema{"ReleasedSandbox", "status:complete|pending|busy|absent sandbox?:Sandbox"},
    Schema{"SandboxUsage",
           "cpu_ms:int|null cpus:number memory_bytes:int|null memory_peak_bytes:int|null "
           "memory_limit_bytes:int pids:int|null pids_limit:int disk_bytes:int|null "
           "disk_limit_bytes:int"},
    Schema{"SandboxTransfer", "in:TransferCaps out:TransferCaps"},
    Schema{"TransferCaps", "max_files:int max_file_bytes:int max_total_bytes:int"},
    Schema{"SandboxResources",
           "cpus:number memory_bytes:int pids:int disk_bytes:int open_files:int"},
};

constexpr std::array kRoutes{
    Route{"POST", "/v1/sandboxes", "Create a sandbox; with session_id the session's, made once.",
          kCreateSchema, One("Sandbox"), Create},
    Route{"POST", "/v1/sandboxes:explain",
          "Say whether POST /v1/sandboxes would be allowed, and why not.", kCreateSchema,
          One("SandboxDecision"), Explain},
    Route{"GET", "/v1/sandboxes", "List sandboxes, also those that are gone.", "",
          PageOf("Sandbox"), List},
    Route{"GET", "/v1/sandboxes/{id}", "Show a sandbox.", "", One("Sandbox"), Show},
    Route{"GET", "/v1/sandboxes/{id}/usage",
          "Show what a sandbox uses now, beside its limits; null is what the host does not tell.",
          "", One("SandboxUsage"), ShowUsage},
    Route{"POST", "/v1/sessions/{id}/sandboxes:release",
          "End the session's sandbox, unless it is busy; the session stays.", kReleaseSchema,
          One("ReleasedSandbox"), Release},
    Route{"DELETE", "/v1/sandboxes/{id}", "End a sandbox; the answer is the receipt.", "",
          One("Sandbox"), Delete},
};

}  // namespace

Resource SandboxResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
