#include "api/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "api/guard.h"
#include "api/problem.h"

namespace caisson::api {
namespace {

using Params = std::map<std::string, std::string, std::less<>>;

// Compares segment by segment; "{name}" takes one segment that is not empty.
std::optional<Params> Match(std::string_view pattern, std::string_view path) {
  Params params;
  while (!pattern.empty() && !path.empty()) {
    pattern.remove_prefix(1);
    path.remove_prefix(1);
    std::string_view expected = pattern.substr(0, pattern.find('/'));
    std::string_view actual = path.substr(0, path.find('/'));
    pattern.remove_prefix(expected.size());
    path.remove_prefix(actual.size());
    if (expected.starts_with('{')) {
      if (actual.empty()) return std::nullopt;
      params.emplace(expected.substr(1, expected.size() - 2), actual);
    } else if (expected != actual) {
      return std::nullopt;
    }
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return params;
}

// What a client may give as its own id of a request: echoed, so it must be harmless anywhere.
bool GoodRequestId(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace

std::vector<Resource> Resources() {
  return {HealthResource(),  DefinitionResource(),  SessionResource(),    EventResource(),
          SandboxResource(), SandboxExecResource(), SandboxFileResource()};
}

Router::Router() {
  for (const Resource& resource : Resources()) {
    routes_.insert(routes_.end(), resource.routes.begin(), resource.routes.end());
  }
}

Task<void> Router::Handle(Services& services, http::ServerRequest& request,
                          http::ServerResponse& response) const {
  auto given = request.head().headers.Find("x-request-id");
  std::string request_id =
      given.has_value() && GoodRequestId(*given) ? std::string(*given) : services.random.Hex(12);
  MonoTime start = services.clock.MonoNow();
  std::string_view route = "none";
  auto reply = co_await Dispatch(services, request, response, request_id, route);
  int status = 200;  // of a stream, ended or broken
  if (!response.started() && !reply) {
    Error& error = reply.error();
    status = InfoOf(error.code).http_status;
    http::Headers headers{{"Content-Type", std::string(kProblemMedia)},
                          {"X-Request-Id", request_id}};
    if (status == 429 || status == 503) headers.Add("Retry-After", "1");
    (void)co_await response.Send(status, std::move(headers), ProblemBody(error, request_id));
  } else if (!response.started()) {
    status = reply->status;
    reply->headers.Add("X-Request-Id", request_id);
    (void)co_await response.Send(status, std::move(reply->headers), std::move(reply->body));
  }
  if (services.metrics != nullptr) {
    auto took = std::chrono::duration_cast<Micros>(services.clock.MonoNow() - start);
    // A method is the caller's text: only those of routes become labels.
    services.metrics->HttpRequest(route == "none" ? "none" : request.method(), route, status, took);
  }
}

Task<Result<Reply>> Router::Dispatch(Services& services, http::ServerRequest& request,
                                     http::ServerResponse& response, std::string request_id,
                                     std::string_view& matched) const {
  CAISSON_CO_TRY(CheckOrigin(request));
  // HEAD is GET without a body, which the server takes care of.
  std::string_view method = request.method() == "HEAD" ? "GET" : request.method();
  std::string allowed;
  for (const Route& route : routes_) {
    auto params = Match(route.pattern, request.path());
    if (!params.has_value()) continue;
    if (route.method != method) {
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", route.method);
      continue;
    }
    matched = route.pattern;
    CAISSON_CO_ASSIGN(Scope scope, ReadScope(request));
    Context context{services,          request, response, std::move(scope), std::move(request_id),
                    std::move(*params)};
    co_return co_await route.handler(context);
  }
  if (!allowed.empty()) {
    co_return Fail(ErrorCode::kMethodNotAllowed,
                   fmt::format("{} has no {}; it has {}", request.path(), method, allowed));
  }
  co_return Fail(ErrorCode::kNotFound, fmt::format("there is no route {}", request.path()));
}

}  // namespace caisson::api
