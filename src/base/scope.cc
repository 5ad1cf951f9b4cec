#include "base/scope.h"

#include <fmt/format.h>
#include "base/digest.h"

namespace caisson {
namespace {

constexpr std::string_view kKeyCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_-";

bool GoodKey(std::string_view key) {
  return !key.empty() && key.size() <= 64 &&
         key.find_first_not_of(kKeyCharacters) == std::string_view::npos;
}

bool GoodValue(std::string_view value) {
  if (value.empty() || value.size() > 256) return false;
  for (char c : value) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

}  // namespace

Result<Scope> Scope::FromTrusted(std::map<std::string, std::string> pairs) {
  if (pairs.size() > 8) {
    return Fail(ErrorCode::kInvalidArgument, "a scope has at most 8 keys");
  }
  std::string key = "{";
  for (const auto& [name, value] : pairs) {
    if (!GoodKey(name)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the scope key \"{}\" is not 1 to 64 of a-z 0-9 _ -", name));
    }
    if (!GoodValue(value)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the value of scope key \"{}\" is not 1 to 256 visible ASCII "
                              "characters",
                              name));
    }
    if (key.size() > 1) key += ',';
    key += fmt::format("\"{}\":\"", name);
    for (char c : value) {
      if (c == '"' || c == '\\') key += '\\';
      key += c;
    }
    key += '"';
  }
  key += '}';
  return Scope(std::move(pairs), std::move(key));
}

std::string Scope::Fingerprint() const { return Sha256Hex(key_).substr(0, 16); }

}  // namespace caisson
