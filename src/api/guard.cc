#include "api/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace caisson::api {
namespace {

constexpr std::string_view kScopePrefix = "x-caisson-scope-";

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

// "name", "name:port", "[::1]:port".
bool IsLoopbackAuthority(std::string_view authority) {
  std::string_view name = authority;
  if (name.starts_with('[')) {
    name = name.substr(0, name.find(']') + 1);
  } else {
    name = name.substr(0, name.find(':'));
  }
  std::string_view port = authority.substr(name.size());
  bool good_port = port.empty() || (port.size() > 1 && port[0] == ':' &&
                                    port.find_first_not_of("0123456789", 1) == port.npos);
  return good_port && (Lower(name) == "localhost" || name == "127.0.0.1" || name == "[::1]");
}

}  // namespace

Result<void> CheckOrigin(const http::ServerRequest& request) {
  const http::Headers& headers = request.head().headers;
  auto host = headers.Find("host").value_or("");
  if (!IsLoopbackAuthority(host)) {
    return Fail(ErrorCode::kPermissionDenied,
                fmt::format("the Host \"{}\" is not this server's: without authentication only "
                            "localhost, 127.0.0.1 and [::1] are served",
                            host));
  }
  auto origin = headers.Find("origin");
  if (!origin.has_value()) return {};
  size_t scheme = origin->find("://");
  if (scheme != std::string_view::npos && IsLoopbackAuthority(origin->substr(scheme + 3)))
    return {};
  return Fail(ErrorCode::kPermissionDenied,
              "requests from web pages of other sites are not served without authentication");
}

Result<Scope> ReadScope(const http::ServerRequest& request) {
  std::map<std::string, std::string> pairs;
  for (const http::Header& field : request.head().headers.fields()) {
    std::string name = Lower(field.name);
    if (!name.starts_with(kScopePrefix)) continue;
    std::string key = name.substr(kScopePrefix.size());
    if (!pairs.emplace(key, field.value).second) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("the scope key \"{}\" is given twice", key));
    }
  }
  return Scope::FromTrusted(std::move(pairs));
}

}  // namespace caisson::api
