// JSON text in and out, with limits.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::json {

using boost::json::array;
using boost::json::object;
using boost::json::value;

inline constexpr size_t kMaxDepth = 64;

// kInvalidJson says where it went wrong. Strict RFC 8259 and UTF-8; at most kMaxDepth deep. The
// size is bounded by whoever read the text.
Result<value> Parse(std::string_view text);
// The same for what must be an object.
Result<object> ParseObject(std::string_view text);

// Compact, on one line.
std::string Serialize(const value& json);
std::string Serialize(const object& json);
// With the members of every object sorted by name: equal values give equal bytes.
std::string SerializeCanonical(const value& json);

}  // namespace caisson::json
