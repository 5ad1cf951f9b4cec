#include "model/wire.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "guest/text.h"
#include "json/reader.h"

namespace caisson::model {
namespace {

constexpr size_t kMaxErrorBody = 64 * 1024;
constexpr size_t kShownBytes = 500;
constexpr Millis kMaxRetryAfter{3'600'000};

// The beginning of a provider's text, for our errors: these become JSON, so it must be UTF-8.
std::string Shown(std::string_view text) {
  size_t end = std::min(text.size(), kShownBytes);
  while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) end--;
  return guest::ReplaceBadUtf8(text.substr(0, end));
}

// {"error": {"type", "message", "code"}}: both protocols.
struct ErrorText {
  std::string type;
  std::string message;
};
ErrorText ReadError(std::string_view body) {
  ErrorText text{"", Shown(body)};
  auto object = json::ParseObject(body);
  if (!object) return text;
  const json::value* error = object->if_contains("error");
  if (error == nullptr || !error->is_object()) return text;
  json::ObjectReader reader(error->get_object());
  text.type = reader.String("code").value_or(reader.String("type").value_or(""));
  text.message = reader.String("message").value_or(text.message);
  return text;
}

// The number in the escape \uXXXX at `at`; 0 where there is none.
uint32_t EscapedUnit(std::string_view json, size_t at) {
  if (at > json.size() || !json.substr(at).starts_with("\\u")) return 0;
  std::string_view digits = json.substr(at + 2, 4);
  uint32_t unit = 0;
  auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
  bool whole = digits.size() == 4 && parsed.ptr == digits.data() + digits.size();
  return parsed.ec == std::errc() && whole ? unit : 0;
}
bool IsFirstHalf(uint32_t unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool IsSecondHalf(uint32_t unit) { return unit >= 0xdc00 && unit < 0xe000; }

// A lost connection to a provider is retryable as a model error; a cancelled call stays cancelled.
AttemptError Broken(Error error) {
  if (error.code == ErrorCode::kCancelled) return ToAttempt(std::move(error));
  Error mapped{ErrorCode::kModelUnavailable, "the model provider does not answer: " + error.message,
               error.cause, true};
  return ToAttempt(std::move(mapped));
}

}  // namespace

void JoinSurrogates(std::string& json, std::string& half) {
  if (json.find("\\ud") == json.npos && json.find("\\uD") == json.npos) return;
  std::string joined;
  for (size_t at = 0; at < json.size();) {
    if (json[at] != '\\') {
      joined += json[at++];
      continue;
    }
    uint32_t unit = EscapedUnit(json, at);
    std::string escape = json.substr(at, unit == 0 ? 2 : 6);
    at += escape.size();
    if (IsFirstHalf(unit) && IsSecondHalf(EscapedUnit(json, at))) {
      joined += escape + json.substr(at, 6);
      at += 6;
    } else if (IsFirstHalf(unit)) {
      half = std::move(escape);
    } else if (IsSecondHalf(unit)) {
      joined += half.empty() ? "\\ufffd" : std::exchange(half, "") + escape;
    } else {
      joined += escape;
    }
  }
  json = std::move(joined);
}

std::optional<Millis> ReadRetryAfter(const http::Headers& headers, WallTime now) {
  auto number = [](std::string_view text) -> std::optional<int64_t> {
    int64_t value = 0;
    auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0) {
      return std::nullopt;
    }
    return value;
  };
  std::optional<Millis> wait;
  if (auto ms = headers.Find("retry-after-ms")) {
    if (auto value = number(*ms)) wait = Millis(*value);
  }
  if (auto text = headers.Find("retry-after"); text.has_value() && !wait.has_value()) {
    if (auto seconds = number(*text)) {
      wait = Millis(std::min<int64_t>(*seconds, kMaxRetryAfter.count()) * 1000);
    } else {
      tm date{};
      std::string copy(*text);
      if (::strptime(copy.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date) != nullptr) {
        auto at = WallTime(std::chrono::seconds(::timegm(&date)));
        wait = std::max(Millis(0), std::chrono::ceil<Millis>(at - now));
      }
    }
  }
  if (wait.has_value()) wait = std::min(*wait, kMaxRetryAfter);
  return wait;
}

AttemptError StatusError(int status, std::string_view type, std::string_view message,
                         std::optional<Millis> retry_after) {
  std::string shown = Shown(message);
  auto make = [&](ErrorCode code, std::string_view what) {
    Error error{code, fmt::format("{}: {}", what, shown.empty() ? "no reason given" : shown),
                fmt::format("status {} type {}", status, type), std::nullopt};
    return AttemptError{std::move(error), retry_after};
  };
  auto says = [&](std::string_view word) {
    return type.find(word) != type.npos || message.find(word) != message.npos;
  };
  if (says("context_length") || says("model_context_window") || says("prompt is too long") ||
      says("maximum context length")) {
    return make(ErrorCode::kModelContextOverflow,
                "the conversation is longer than the model accepts");
  }
  if (status == 401 || status == 403 || says("authentication_error") || says("permission_error")) {
    return make(ErrorCode::kModelUnauthorized, "the model provider refused the key");
  }
  if (status == 429 || says("rate_limit")) {
    return make(ErrorCode::kModelRateLimited, "the model provider limits the rate");
  }
  if (status == 408 || status == 409 || status >= 500 || says("overloaded") || says("api_error") ||
      says("server_error")) {
    return make(ErrorCode::kModelUnavailable, "the model provider has a fault");
  }
  return make(ErrorCode::kModelBadRequest, "the model provider refused the request");
}

Task<std::expected<EventStream, AttemptError>> PostForEvents(
    http::Connector& connector, const Clock& clock, const ProviderDefinition& definition,
    std::string path, http::Headers headers, std::string body, Until until) {
  auto url = http::ParseUrl(definition.base_url);
  if (!url) co_return std::unexpected(ToAttempt(std::move(url.error())));
  http::RequestHead head{"POST", url->path + path, std::move(headers)};
  head.headers.Add("Host", url->Authority());
  head.headers.Add("Content-Type", "application/json");
  head.headers.Add("Accept", "text/event-stream");
  head.headers.Add("User-Agent", "caisson/" CAISSON_VERSION);
  Until patience = until.Within(clock, definition.timeout);
  auto pool = connector.PoolOf(*url);
  auto connection = co_await pool->Borrow(patience);
  if (!connection) co_return std::unexpected(Broken(std::move(connection.error())));
  auto answer = co_await (*connection)->Send(head, body, patience);
  if (!answer && answer.error().code == ErrorCode::kConnectionLost && connection->reused()) {
    // Most likely the provider closed it as the request was on its way, and has not taken that. No
    // more than this one try: what a model is asked twice is paid twice.
    connection = co_await pool->Dial(patience);
    if (!connection) co_return std::unexpected(Broken(std::move(connection.error())));
    answer = co_await (*connection)->Send(std::move(head), body, patience);
  }
  if (!answer) co_return std::unexpected(Broken(std::move(answer.error())));
  if (answer->status != 200) {
    auto text = co_await (*connection)->ReadWholeBody(kMaxErrorBody, patience);
    ErrorText error = ReadError(text.value_or(""));
    co_return std::unexpected(StatusError(answer->status, error.type, error.message,
                                          ReadRetryAfter(answer->headers, clock.Now())));
  }
  co_return EventStream(std::move(*connection), clock, definition.timeout, std::move(until));
}

Task<std::expected<std::optional<http::ServerSentEvent>, AttemptError>> EventStream::Next() {
  for (;;) {
    auto event = decoder_.Next();
    if (!event) {
      Error error{ErrorCode::kModelProtocol, event.error().message, {}, std::nullopt};
      co_return std::unexpected(ToAttempt(std::move(error)));
    }
    if (std::optional<http::ServerSentEvent>& whole = *event; whole.has_value()) {
      JoinSurrogates(whole->data, half_);
      co_return std::move(whole);
    }
    auto piece = co_await connection_->ReadBody(until_.Within(clock_, timeout_));
    if (!piece) co_return std::unexpected(Broken(std::move(piece.error())));
    if (piece->empty()) co_return std::optional<http::ServerSentEvent>();
    decoder_.Feed(*piece);
  }
}

Task<void> EventStream::Finish() {
  constexpr Millis kPatience{20};  // a new connection would take less
  Until until = until_.Within(clock_, kPatience);
  for (int pieces = 0; pieces < 4; pieces++) {
    auto piece = co_await connection_->ReadBody(until);
    if (!piece || piece->empty()) co_return;
  }
}

}  // namespace caisson::model
