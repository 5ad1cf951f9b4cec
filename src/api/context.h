// What a handler gets, and what it gives back.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "base/scope.h"
#include "base/task.h"
#include "http/server.h"
#include "json/json.h"
#include "sandbox/manager.h"
#include "store/store.h"
#include "telemetry/metrics.h"

namespace caisson::api {

// The parts that handlers use; they outlive every request.
struct Services {
  const Clock& clock;
  Random& random;
  store::Store& store;
  // Null where nobody asks for them.
  telemetry::Metrics* metrics = nullptr;
  // Null where none can be made; the routes refuse then.
  sandbox::Manager* sandboxes = nullptr;
  // Tells the worker that a run was submitted; may be empty.
  std::function<void()> run_submitted = {};
  // True from the moment the server drains: /ready says so.
  bool draining = false;
};

// One request on its way through the API.
struct Context {
  Services& services;
  http::ServerRequest& request;
  http::ServerResponse& response;
  Scope scope;
  std::string request_id;
  // What stood for {name} in the route's pattern.
  std::map<std::string, std::string, std::less<>> params;

  const std::string& Param(std::string_view name) const { return params.find(name)->second; }
};

// A handler's answer, or the sign that it has answered by itself (a stream).
struct Reply {
  int status = 200;
  http::Headers headers;
  std::string body;
  bool answered = false;

  static Reply Json(int status, const json::object& body) {
    return {status, {{"Content-Type", "application/json"}}, json::Serialize(body), false};
  }
  static Reply NoContent() { return {204, {}, "", false}; }
  static Reply Answered() { return {0, {}, "", true}; }
};

using ApiHandler = Task<Result<Reply>> (*)(Context& context);

inline constexpr size_t kMaxJsonBody = 4 << 20;

// The body as a JSON object; kUnsupportedMediaType unless it says that it is JSON (or nothing).
// Without a body it is an empty one.
Task<Result<json::object>> ReadJson(Context& context);
// `limit` and `cursor` of a list.
Result<store::PageRequest> ReadPage(Context& context);
// `Idempotency-Key` with the digest of what identifies the request: method, path and `body`.
store::Idempotency ReadIdempotency(Context& context, std::string_view body);
// A decimal query parameter; `absent` when it is not there.
Result<uint64_t> ReadNumber(Context& context, const std::string& name, uint64_t absent);

}  // namespace caisson::api
