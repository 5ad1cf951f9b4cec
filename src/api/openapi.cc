#include <fmt/format.h>

#include <span>
#include <string>

#include "api/problem.h"
#include "api/router.h"
#include "events/event.h"
#include "guest/protocol.h"
#include "store/states.h"

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

json::object Answer(const Success& success) {
  if (success.schema.empty()) return {{"type", "string"}};
  if (success.page) return SchemaReference(fmt::format("{}Page", success.schema));
  return SchemaReference(success.schema);
}

json::object Operation(const Route& route) {
  json::object problem{{"description", "an error"},
                       {"content", {{kProblemMedia, {{"schema", SchemaReference("Problem")}}}}}};
  json::object success{{"description", "success"}};
  if (!route.success.media.empty()) {
    success["content"] = json::object{{route.success.media, {{"schema", Answer(route.success)}}}};
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

// A text that is the `name` of one of the rows.
template <typename Rows, typename Member>
json::object Names(const Rows& rows, Member name) {
  json::array names;
  for (const auto& row : rows) names.emplace_back(row.*name);
  return {{"type", "string"}, {"enum", std::move(names)}};
}

template <typename Status>
json::object StatusNames() {
  return Names(store::Statuses<Status>(), &store::StatusInfo<Status>::name);
}

json::object Components(const std::vector<Resource>& resources) {
  size_t codes = 0;
  const ErrorCodeInfo* first_code = ErrorCodeTable(codes);
  size_t types = 0;
  const events::EventTypeInfo* first_type = events::EventTypeTable(types);
  constexpr Schema kProblem{"Problem",
                            "type:string title:string status:int code:ErrorCode detail:string "
                            "retryable:bool request_id?:string"};
  // What tables of the product say is not said again.
  json::object schemas{
      {kProblem.name, ToJsonSchema(kProblem)},
      {"ErrorCode", Names(std::span(first_code, codes), &ErrorCodeInfo::wire)},
      {"EventType", Names(std::span(first_type, types), &events::EventTypeInfo::name)},
      {"ExitReason", Names(guest::kExitReasons, &guest::ExitReasonName::name)},
      {"SessionStatus", StatusNames<store::SessionStatus>()},
      {"RunStatus", StatusNames<store::RunStatus>()},
      {"SandboxStatus", StatusNames<store::SandboxStatus>()}};
  for (const Resource& resource : resources) {
    for (const Schema& schema : resource.schemas) schemas[schema.name] = ToJsonSchema(schema);
    for (const Route& route : resource.routes) {
      if (!route.success.page) continue;
      std::string fields = fmt::format("items:[{}] next_cursor:string", route.success.schema);
      std::string name = fmt::format("{}Page", route.success.schema);
      schemas[name] = ToJsonSchema({name, fields});
    }
  }
  return schemas;
}

}  // namespace

json::object OpenApi(const std::vector<Resource>& resources) {
  json::object paths;
  for (const Resource& resource : resources) {
    for (const Route& route : resource.routes) {
      json::value& path = paths[route.pattern];
      if (path.is_null()) path = json::object();
      std::string method(route.method);
      for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
      path.as_object()[method] = Operation(route);
    }
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Caisson"}, {"version", CAISSON_VERSION}}},
          {"paths", std::move(paths)},
          {"components", {{"schemas", Components(resources)}}}};
}

}  // namespace caisson::api
