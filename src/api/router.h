// Routes as data: the one list from which requests are dispatched and /openapi.json is made.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/context.h"

namespace caisson::api {

struct Route {
  std::string_view method;
  std::string_view pattern;  // "/v1/sessions/{id}/messages"
  std::string_view summary;  // one sentence for the description
  // JSON Schema of the request's body; empty: none.
  std::string_view body_schema;
  // The media type of a successful answer; empty: no body.
  std::string_view answer;
  ApiHandler handler;
};

// Each resource's routes, in its own file.
std::span<const Route> HealthRoutes();
std::span<const Route> DefinitionRoutes();
std::span<const Route> SessionRoutes();
std::span<const Route> EventRoutes();
std::span<const Route> SandboxRoutes();
std::span<const Route> SandboxFileRoutes();

class Router {
 public:
  Router();
  // Answers the request, whatever happens.
  Task<void> Handle(Services& services, http::ServerRequest& request,
                    http::ServerResponse& response) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  // `matched` becomes the route's pattern, which lives as long as the router.
  Task<Result<Reply>> Dispatch(Services& services, http::ServerRequest& request,
                               http::ServerResponse& response, std::string request_id,
                               std::string_view& matched) const;
  std::vector<Route> routes_;
};

// The OpenAPI 3.1 description of `routes`.
json::object OpenApi(const std::vector<Route>& routes);

}  // namespace caisson::api
