#include "json/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <vector>

namespace caisson::json {

Result<value> Parse(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  // The parser is used in two steps because it tells how far it came.
  boost::json::stream_parser parser(boost::json::storage_ptr(), options);
  boost::system::error_code error;
  size_t used = parser.write_some(text.data(), text.size(), error);
  if (!error && used < text.size() &&
      text.substr(used).find_first_not_of(" \t\r\n") != std::string_view::npos) {
    error = boost::json::error::extra_data;
  }
  if (!error) parser.finish(error);
  if (error) {
    return Fail(ErrorCode::kInvalidJson,
                fmt::format("the text is not valid JSON at byte {}: {}", used, error.message()));
  }
  return parser.release();
}

Result<object> ParseObject(std::string_view text) {
  CAISSON_ASSIGN(value json, Parse(text));
  if (!json.is_object()) return Fail(ErrorCode::kInvalidJson, "the text is not a JSON object");
  return std::move(json).as_object();
}

std::string Serialize(const value& json) { return boost::json::serialize(json); }
std::string Serialize(const object& json) { return boost::json::serialize(json); }

namespace {

void AppendCanonical(const value& json, std::string& text) {
  if (const object* members = json.if_object()) {
    std::vector<const object::value_type*> sorted;
    for (const auto& member : *members) sorted.push_back(&member);
    std::ranges::sort(sorted, {}, [](const auto* member) { return member->key(); });
    text += '{';
    for (const auto* member : sorted) {
      if (member != sorted.front()) text += ',';
      text += boost::json::serialize(boost::json::string(member->key()));
      text += ':';
      AppendCanonical(member->value(), text);
    }
    text += '}';
  } else if (const array* items = json.if_array()) {
    text += '[';
    for (size_t i = 0; i < items->size(); i++) {
      if (i > 0) text += ',';
      AppendCanonical((*items)[i], text);
    }
    text += ']';
  } else {
    text += boost::json::serialize(json);
  }
}

}  // namespace

std::string SerializeCanonical(const value& json) {
  std::string text;
  AppendCanonical(json, text);
  return text;
}

}  // namespace caisson::json
