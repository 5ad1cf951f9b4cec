#include "api/context.h"

#include <fmt/format.h>

#include <charconv>

#include "base/digest.h"

namespace caisson::api {
namespace {

Result<uint64_t> ParseNumber(std::string_view name, std::string_view text) {
  uint64_t number = 0;
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not a number of the form 0, 1, 2, …", name));
  }
  return number;
}

}  // namespace

Task<Result<json::object>> ReadJson(Context& context) {
  auto type = context.request.head().headers.Find("content-type");
  if (type.has_value() && !type->starts_with("application/json")) {
    co_return Fail(ErrorCode::kUnsupportedMediaType,
                   "the body must be application/json; set Content-Type accordingly");
  }
  CAISSON_CO_ASSIGN(std::string body, co_await context.request.ReadWholeBody(kMaxJsonBody));
  if (body.empty()) co_return json::object();
  co_return json::ParseObject(body);
}

Result<store::PageRequest> ReadPage(Context& context) {
  store::PageRequest page;
  CAISSON_ASSIGN(uint64_t limit, ReadNumber(context, "limit", page.limit));
  page.limit = static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX));
  if (auto cursor = context.request.Query("cursor")) page.cursor = *cursor;
  return page;
}

store::Idempotency ReadIdempotency(Context& context, std::string_view body) {
  auto key = context.request.head().headers.Find("idempotency-key");
  if (!key.has_value()) return {};
  std::string identity =
      fmt::format("{} {}\n{}", context.request.method(), context.request.path(), body);
  return {std::string(*key), Sha256Hex(identity)};
}

Result<uint64_t> ReadNumber(Context& context, const std::string& name, uint64_t absent) {
  auto text = context.request.Query(name);
  if (!text.has_value()) return absent;
  return ParseNumber(name, *text);
}

}  // namespace caisson::api
