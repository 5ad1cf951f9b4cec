#include "api/problem.h"

#include "json/json.h"

namespace caisson::api {

std::string ProblemBody(const Error& error, std::string_view request_id) {
  const ErrorCodeInfo& info = InfoOf(error.code);
  json::object body{{"type", "about:blank"},      {"title", info.title},
                    {"status", info.http_status}, {"code", info.wire},
                    {"detail", error.message},    {"retryable", error.retryable()}};
  if (!request_id.empty()) body["request_id"] = request_id;
  return json::Serialize(body);
}

}  // namespace caisson::api
