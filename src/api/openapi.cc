#include <fmt/format.h>

#include <string>

#include "api/problem.h"
#include "api/router.h"

namespace caisson::api {
namespace {

json::array Parameters(std::string_view pattern) {
  json::array parameters;
  for (size_t open = pattern.find('{'); open != std::string_view::npos;
       open = pattern.find('{', open + 1)) {
    std::string_view name = pattern.substr(open + 1, pattern.find('}', open) - open - 1);
    parameters.push_back(json::object{
        {"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  return parameters;
}

json::object Operation(const Route& route) {
  json::object problem{
      {"description", "an error"},
      {"content", {{kProblemMedia, {{"schema", {{"$ref", "#/components/schemas/Problem"}}}}}}}};
  json::object success{{"description", "success"}};
  if (!route.answer.empty()) {
    success["content"] = json::object{{route.answer, {{"schema", json::object()}}}};
  }
  json::object operation{{"summary", route.summary},
                         {"parameters", Parameters(route.pattern)},
                         {"responses", {{"2XX", success}, {"default", problem}}}};
  if (!route.body_schema.empty()) {
    auto schema = json::Parse(route.body_schema);
    operation["requestBody"] = json::object{
        {"required", true}, {"content", {{"application/json", {{"schema", schema.value()}}}}}};
  }
  return operation;
}

json::object ProblemSchema() {
  json::array codes;
  size_t size = 0;
  const ErrorCodeInfo* table = ErrorCodeTable(size);
  for (size_t i = 0; i < size; i++) codes.emplace_back(table[i].wire);
  return {{"type", "object"},
          {"required", {"type", "title", "status", "code", "detail", "retryable"}},
          {"properties",
           {{"type", {{"type", "string"}}},
            {"title", {{"type", "string"}}},
            {"status", {{"type", "integer"}}},
            {"code", {{"type", "string"}, {"enum", codes}}},
            {"detail", {{"type", "string"}}},
            {"retryable", {{"type", "boolean"}}},
            {"request_id", {{"type", "string"}}}}}};
}

}  // namespace

json::object OpenApi(const std::vector<Route>& routes) {
  json::object paths;
  for (const Route& route : routes) {
    json::value& path = paths[route.pattern];
    if (path.is_null()) path = json::object();
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    path.as_object()[method] = Operation(route);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Caisson"}, {"version", CAISSON_VERSION}}},
          {"paths", std::move(paths)},
          {"components", {{"schemas", {{"Problem", ProblemSchema()}}}}}};
}

}  // namespace caisson::api
