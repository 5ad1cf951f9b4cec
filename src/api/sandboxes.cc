// Sandboxes: create, explain, list, show, delete.
#include <fmt/format.h>

#include <array>

#include "api/guest_calls.h"
#include "api/resources.h"
#include "api/router.h"
#include "json/reader.h"

namespace caisson::api {
namespace {

constexpr Millis kCreateTime{30'000};
constexpr Millis kDeleteTime{20'000};

Result<void> ReadCaps(json::ObjectReader& transfer, std::string_view direction,
                      sandbox::TransferCaps& caps) {
  const json::object* object = transfer.Object(direction);
  if (object == nullptr) return {};
  json::ObjectReader reader(*object, transfer.PathOf(direction));
  auto read = [&](std::string_view name, int64_t& into) {
    into = reader.Int(name, 1, INT64_MAX).value_or(into);
  };
  read("max_files", caps.max_files);
  read("max_file_bytes", caps.max_file_bytes);
  read("max_total_bytes", caps.max_total_bytes);
  return reader.Finish(json::ObjectReader::Unknown::kRefuse);
}

Result<sandbox::SandboxSpec> ReadSpec(json::ObjectReader& reader) {
  CAISSON_ASSIGN(sandbox::SandboxSpec spec,
                 sandbox::BuiltInProfile(reader.String("profile").value_or("default")));
  if (const json::object* object = reader.Object("resources")) {
    json::ObjectReader resources(*object, "resources");
    spec.resources.cpus = resources.Number("cpus", 0.01, 1024).value_or(spec.resources.cpus);
    auto bytes = [&](std::string_view name, uint64_t& into) {
      if (auto number = resources.Int(name, 1 << 20, 1ll << 44))
        into = static_cast<uint64_t>(*number);
    };
    bytes("memory_bytes", spec.resources.memory_bytes);
    bytes("disk_bytes", spec.resources.disk_bytes);
    if (auto pids = resources.Int("pids", 2, 1 << 20)) {
      spec.resources.pids = static_cast<uint32_t>(*pids);
    }
    CAISSON_TRY(resources.Finish(json::ObjectReader::Unknown::kRefuse));
  }
  if (const json::object* object = reader.Object("transfer")) {
    json::ObjectReader transfer(*object, "transfer");
    CAISSON_TRY(ReadCaps(transfer, "in", spec.transfer.in));
    CAISSON_TRY(ReadCaps(transfer, "out", spec.transfer.out));
    CAISSON_TRY(transfer.Finish(json::ObjectReader::Unknown::kRefuse));
  }
  if (auto ttl = reader.Int("ttl_ms", 1'000, 30ll * 24 * 3'600'000)) {
    spec.lifetimes.ttl = Millis(*ttl);
  }
  if (auto network = reader.String("network")) {
    CAISSON_ASSIGN(spec.network, sandbox::ParseNetworkMode(*network));
  }
  spec.writable_paths = reader.Strings("writable_paths");
  spec.read_only_sets = reader.Strings("read_only_sets");
  if (const json::object* env = reader.Object("env")) {
    for (const auto& [name, value] : *env) {
      if (!value.is_string()) reader.Wrong("env", "must hold strings only");
      if (value.is_string()) spec.env[std::string(name)] = value.get_string();
    }
  }
  return spec;
}

Task<Result<Reply>> Create(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  CAISSON_CO_ASSIGN(sandbox::SandboxSpec spec, ReadSpec(reader));
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
  Result<sandbox::SandboxSpec> spec = ReadSpec(reader);
  (void)reader.String("session_id");
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
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

constexpr std::string_view kCreateSchema =
    R"({"type":"object","properties":{"profile":{"type":"string"},
"session_id":{"type":"string"},"network":{"enum":["closed","allow_list","named","unrestricted"]},
"ttl_ms":{"type":"integer"},"env":{"type":"object"},
"writable_paths":{"type":"array","items":{"type":"string"}},
"read_only_sets":{"type":"array","items":{"type":"string"}},
"resources":{"type":"object","properties":{
"cpus":{"type":"number"},"memory_bytes":{"type":"integer"},"pids":{"type":"integer"},
"disk_bytes":{"type":"integer"}}},
"transfer":{"type":"object","properties":{"in":{"type":"object"},"out":{"type":"object"}}}}})";
constexpr std::array kSchemas{
    Schema{"Sandbox",
           "id:string backend:string profile:string status:SandboxStatus generation:int "
           "created_at:time updated_at:time expires_at:time session_id?:string "
           "status_reason?:string spec:SandboxSpec"},
    Schema{"SandboxSpec",
           "backend:string profile:string work_dir:string network:string ttl_ms:int "
           "resources:SandboxResources transfer:SandboxTransfer"},
    Schema{"SandboxDecision",
           "allowed:bool backend?:string profile?:string isolation?:string code?:string "
           "detail?:string"},
    Schema{"SandboxTransfer", "in:TransferCaps out:TransferCaps"},
    Schema{"TransferCaps", "max_files:int max_file_bytes:int max_total_bytes:int"},
    Schema{"SandboxResources", "cpus:number memory_bytes:int pids:int disk_bytes:int"},
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
    Route{"DELETE", "/v1/sandboxes/{id}", "End a sandbox; the answer is the receipt.", "",
          One("Sandbox"), Delete},
};

}  // namespace

Resource SandboxResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
