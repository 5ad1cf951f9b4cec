#include <array>

#include "api/router.h"

namespace caisson::api {
namespace {

Task<Result<Reply>> Health(Context&) {
  co_return Reply::Json(200, {{"status", "ok"}, {"version", CAISSON_VERSION}});
}

Task<Result<Reply>> Ready(Context& context) {
  if (context.services.draining) {
    co_return Fail(ErrorCode::kShuttingDown, "the server is stopping");
  }
  CAISSON_CO_TRY(co_await context.services.store.Check());
  co_return Reply::Json(200, {{"status", "ready"}});
}

// What is on. An agent that asks for something else is stored, and refused at session start.
Task<Result<Reply>> Capabilities(Context& context) {
  bool sandboxes = context.services.sandboxes != nullptr;
  bool runs = static_cast<bool>(context.services.run_submitted);
  json::object features{{"definitions", true}, {"sessions", true},       {"events", true},
                        {"runs", runs},        {"sandboxes", sandboxes}, {"approvals", false}};
  co_return Reply::Json(
      200, {{"version", CAISSON_VERSION}, {"store", "sqlite"}, {"features", std::move(features)}});
}

Task<Result<Reply>> MetricsText(Context& context) {
  if (context.services.metrics == nullptr) {
    co_return Fail(ErrorCode::kNotSupported, "this server keeps no metrics");
  }
  co_return Reply{200,
                  {{"Content-Type", "text/plain; version=0.0.4"}},
                  context.services.metrics->Text(),
                  false};
}

Task<Result<Reply>> Description(Context&) {
  static const std::string kText = json::Serialize(OpenApi(Resources()));
  co_return Reply{200, {{"Content-Type", "application/json"}}, kText, false};
}

constexpr std::array kSchemas{
    Schema{"Health", "status:string version:string"},
    Schema{"Readiness", "status:string"},
    Schema{"Capabilities", "version:string store:string features:Features"},
    Schema{"Features",
           "definitions:bool sessions:bool events:bool runs:bool sandboxes:bool approvals:bool"},
    Schema{"Description", "openapi:string info:object paths:object components:object"},
};

constexpr std::array kRoutes{
    Route{"GET", "/health", "Is the process alive? O(1), touches nothing.", "", One("Health"),
          Health},
    Route{"GET", "/ready", "Can it serve? Checks the store; 503 while draining.", "",
          One("Readiness"), Ready},
    Route{"GET", "/metrics", "Counters and durations, for Prometheus.", "",
          Success{"text/plain", ""}, MetricsText},
    Route{"GET", "/v1/capabilities", "What this server can do.", "", One("Capabilities"),
          Capabilities},
    Route{"GET", "/openapi.json", "This description.", "", One("Description"), Description},
};

}  // namespace

Resource HealthResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
