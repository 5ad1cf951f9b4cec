// Errors as clients get them: application/problem+json (RFC 9457) with a stable code.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::api {

inline constexpr std::string_view kProblemMedia = "application/problem+json";

// {"type","title","status","code","detail","retryable","request_id"?}. The cause is not in it: it
// belongs to the log.
std::string ProblemBody(const Error& error, std::string_view request_id);

}  // namespace caisson::api
