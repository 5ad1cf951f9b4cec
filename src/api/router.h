// Routes as data: the one list from which requests are dispatched and /openapi.json is made.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/context.h"
#include "api/schema.h"

namespace caisson::api {

struct Route {
  std::string_view method;
  std::string_view pattern;  // "/v1/sessions/{id}/messages"
  std::string_view summary;  // one sentence for the description
  // JSON Schema of the request's body; empty: none.
  std::string_view body_schema;
  Success success;
  ApiHandler handler;
};

// Each resource's routes and what they answer, in its own file.
struct Resource {
  std::span<const Route> routes;
  std::span<const Schema> schemas;
};
Resource HealthResource();
Resource DefinitionResource();
Resource SessionResource();
Resource EventResource();
Resource SandboxResource();
Resource SandboxExecResource();
Resource SandboxFileResource();
std::vector<Resource> Resources();

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

// The OpenAPI 3.1 description.
json::object OpenApi(const std::vector<Resource>& resources);

}  // namespace caisson::api
