// What the protocols have in common: one POST, a stream of server-sent events back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "http/connector.h"
#include "http/sse_decoder.h"
#include "json/json.h"
#include "model/provider.h"

namespace caisson::model {

// A provider's answer being read. Waits at most the definition's timeout for each piece.
class EventStream {
 public:
  EventStream(http::PooledConnection connection, const Clock& clock, Millis timeout, Until until)
      : connection_(std::move(connection)),
        clock_(clock),
        timeout_(timeout),
        until_(std::move(until)) {}
  // The next event; nothing at the end of the answer, which is for the protocol to judge.
  Task<std::expected<std::optional<http::ServerSentEvent>, AttemptError>> Next();
  // The answer is complete. Its end, which is normally there, is read so that the connection can
  // serve the next call.
  Task<void> Finish();

 private:
  http::PooledConnection connection_;
  http::SseDecoder decoder_;
  std::string half_;  // see JoinSurrogates
  const Clock& clock_;
  Millis timeout_;
  Until until_;
};

// Sends `body` to `path` below the definition's base URL. A status other than 200 becomes an error
// by StatusError.
Task<std::expected<EventStream, AttemptError>> PostForEvents(
    http::Connector& connector, const Clock& clock, const ProviderDefinition& definition,
    std::string path, http::Headers headers, std::string body, Until until);

// Some servers cut their answer into pieces of UTF-16: the two halves of a character beyond U+FFFF
// then come as escapes in different events, which are not valid JSON each. A first half at the end
// of a string is taken out and kept in `half` until the second one comes; a second half alone
// becomes U+FFFD.
void JoinSurrogates(std::string& json, std::string& half);

// The error for an HTTP status or an error object in a stream: 401 and 403, 429, 408 and 5xx,
// context overflow, and the rest as a bad request. `message` is the provider's text: it goes into
// the cause and, shortened, into the message, since the user must know what the provider refused.
AttemptError StatusError(int status, std::string_view type, std::string_view message,
                         std::optional<Millis> retry_after);
// retry-after-ms, or Retry-After in seconds or as a date. At most one hour.
std::optional<Millis> ReadRetryAfter(const http::Headers& headers, WallTime now);

inline AttemptError ToAttempt(Error error) { return {std::move(error), std::nullopt}; }

// What one event adds to the answer.
struct Added {
  std::string text;
  std::string reasoning;
};

// Feeds a protocol's assembler (Take, done, Finish) with the events of an answer, and hands on what
// each adds.
template <typename Assembler>
Task<AttemptResult> Assemble(EventStream& stream, Assembler assembler, DeltaSink& sink) {
  while (!assembler.done()) {
    auto event = co_await stream.Next();
    if (!event) co_return std::unexpected(std::move(event.error()));
    if (!event->has_value()) break;
    auto added = assembler.Take(**event);
    if (!added) co_return std::unexpected(std::move(added.error()));
    Result<void> taken;
    if (!added->reasoning.empty()) taken = co_await sink.OnReasoning(added->reasoning);
    if (taken && !added->text.empty()) taken = co_await sink.OnText(added->text);
    if (!taken) co_return std::unexpected(ToAttempt(std::move(taken.error())));
  }
  co_await stream.Finish();
  co_return assembler.Finish();
}

}  // namespace caisson::model
