#include "json/reader.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace caisson::json {

const value* ObjectReader::Find(std::string_view name) {
  known_.emplace(name);
  const value* found = json_.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool ObjectReader::Has(std::string_view name) const {
  const value* found = json_.if_contains(name);
  return found != nullptr && !found->is_null();
}

std::string ObjectReader::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void ObjectReader::Wrong(std::string_view name, std::string_view what) {
  if (wrong_.empty()) wrong_ = fmt::format("\"{}\" {}", PathOf(name), what);
}

std::optional<std::string> ObjectReader::String(std::string_view name) {
  const value* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_string()) return std::string(found->get_string());
  Wrong(name, "must be a string");
  return std::nullopt;
}

std::string ObjectReader::RequiredString(std::string_view name, size_t max_bytes) {
  auto text = String(name);
  if (!text.has_value() || text->empty()) {
    Wrong(name, "is required and must be a string that is not empty");
    return {};
  }
  if (text->size() > max_bytes) Wrong(name, fmt::format("is longer than {} bytes", max_bytes));
  return std::move(*text);
}

std::optional<int64_t> ObjectReader::Int(std::string_view name, int64_t min, int64_t max) {
  const value* found = Find(name);
  if (found == nullptr) return std::nullopt;
  // Integers only: 1.0 and 1e3 are numbers of another type, and rounding would hide a mistake.
  if (found->is_int64() && found->get_int64() >= min && found->get_int64() <= max) {
    return found->get_int64();
  }
  Wrong(name, fmt::format("must be an integer between {} and {}", min, max));
  return std::nullopt;
}

std::optional<double> ObjectReader::Number(std::string_view name, double min, double max) {
  const value* found = Find(name);
  if (found == nullptr) return std::nullopt;
  boost::system::error_code error;
  double number = found->to_number<double>(error);
  if (!error && number >= min && number <= max) return number;
  Wrong(name, fmt::format("must be a number between {} and {}", min, max));
  return std::nullopt;
}

std::optional<bool> ObjectReader::Bool(std::string_view name) {
  const value* found = Find(name);
  if (found == nullptr) return std::nullopt;
  if (found->is_bool()) return found->get_bool();
  Wrong(name, "must be true or false");
  return std::nullopt;
}

const object* ObjectReader::Object(std::string_view name) {
  const value* found = Find(name);
  if (found == nullptr) return nullptr;
  if (found->is_object()) return &found->get_object();
  Wrong(name, "must be an object");
  return nullptr;
}

const array* ObjectReader::Array(std::string_view name) {
  const value* found = Find(name);
  if (found == nullptr) return nullptr;
  if (found->is_array()) return &found->get_array();
  Wrong(name, "must be an array");
  return nullptr;
}

std::vector<std::string> ObjectReader::Strings(std::string_view name) {
  std::vector<std::string> strings;
  const array* items = Array(name);
  if (items == nullptr) return strings;
  for (const value& item : *items) {
    if (!item.is_string()) {
      Wrong(name, "must be an array of strings");
      return {};
    }
    strings.emplace_back(item.get_string());
  }
  return strings;
}

std::optional<std::string> ObjectReader::Choice(std::string_view name,
                                                std::initializer_list<std::string_view> choices) {
  auto text = String(name);
  if (!text.has_value()) return std::nullopt;
  std::string listed;
  for (std::string_view choice : choices) {
    if (*text == choice) return text;
    listed += fmt::format("{}\"{}\"", listed.empty() ? "" : ", ", choice);
  }
  Wrong(name, "must be one of " + listed);
  return std::nullopt;
}

Result<void> ObjectReader::Finish(Unknown unknown) const {
  if (!wrong_.empty()) return Fail(ErrorCode::kInvalidArgument, wrong_);
  if (unknown == Unknown::kIgnore) return {};
  for (const auto& member : json_) {
    if (!known_.contains(std::string_view(member.key()))) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("\"{}\" is not a field that is known here",
                              PathOf(std::string_view(member.key()))));
    }
  }
  return {};
}

}  // namespace caisson::json
