// What the tools of a sandbox have in common: reading arguments, and errors as the model is told
// them.
#pragma once

#include "agent/tools.h"
#include "base/clock.h"
#include "http/message.h"
#include "json/reader.h"

namespace caisson::agent {

inline constexpr Millis kFileTime{30'000};  // for a call that is no command

// The run's end for a cancelled call; an outcome for everything else.
Result<ToolOutcome> ToOutcome(const Error& error);

// Arguments that a tool does not know are no mistake.
Result<void> Checked(json::ObjectReader& reader);

// The description that the guest sends beside bytes.
Result<json::object> MetaOf(const http::ResponseHead& head);

#define TOOL_ASSIGN(lhs, expr) TOOL_ASSIGN_INNER(CAISSON_CONCAT(tool_result_, __LINE__), lhs, expr)
#define TOOL_ASSIGN_INNER(tmp, lhs, expr)                 \
  auto tmp = (expr);                                      \
  if (!tmp.has_value()) co_return ToOutcome(tmp.error()); \
  lhs = std::move(tmp).value()

}  // namespace caisson::agent
