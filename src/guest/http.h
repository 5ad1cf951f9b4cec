// HTTP/1.1 messages, server side, without I/O: bytes go in, events come out.
//
// Strict, because whatever parses a message differently from its peer can be made to see two
// messages where the peer sees one. Not accepted: both or repeated Content-Length and
// Transfer-Encoding, any coding but `chunked`, folded lines, a bare CR or LF, white space before a
// colon, control bytes in a value, versions other than 1.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace caisson::guest {

struct HttpRequest {
  std::string method;
  std::string path;  // percent-decoded
  std::vector<std::pair<std::string, std::string>> query;    // percent-decoded
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool close = false;            // Connection: close
  bool expect_continue = false;  // Expect: 100-continue

  bool has_body() const { return chunked || content_length.value_or(0) > 0; }
  // The first of that name; null when absent. `name` in lower case.
  const std::string* Header(std::string_view name) const;
  const std::string* Query(std::string_view name) const;
};

class HttpParser {
 public:
  enum class Event : uint8_t {
    kNeedMore,  // everything given is consumed
    kHeader,    // request() is complete; the body follows
    kBody,      // body() is a piece of it, a view into the input
    kEnd,       // the message is over; Reset() starts the next
    kError,     // error(); the stream cannot be used any more
  };

  // Consumes from the front of `input` up to the next event.
  Event Next(std::string_view& input);
  void Reset();

  const HttpRequest& request() const { return request_; }
  std::string_view body() const { return body_; }
  const Error& error() const { return error_; }
  // Nothing of a message has been seen since the last Reset.
  bool idle() const { return state_ == State::kHeader && line_.empty(); }

 private:
  enum class State : uint8_t {
    kHeader, kLength, kChunkSize, kChunkData, kChunkEnd, kTrailer, kDone, kBroken
  };

  Event Broken(ErrorCode code, const char* message);
  Event ReadHeader(std::string_view& input);
  bool ParseHeader(std::string_view block);
  bool ParseRequestLine(std::string_view line);
  bool ParseTarget(std::string_view target);
  bool ParseField(std::string_view line);
  bool Interpret();
  // Moves one CRLF line into line_; false when more bytes are needed or the stream is broken.
  bool ReadLine(std::string_view& input, size_t limit);
  Event ReadChunkSize(std::string_view& input);
  Event ReadTrailer(std::string_view& input);

  State state_ = State::kHeader;
  HttpRequest request_;
  std::string line_;        // the header block or a chunk line, while it arrives
  uint64_t remaining_ = 0;  // of the body or the chunk
  size_t trailer_bytes_ = 0;
  std::string_view body_;
  Error error_;
};

// The head of a response, with `Content-Length` if `length` is given, else chunked; `extra` is
// "Name: value\r\n" lines.
std::string HttpResponseHead(int status, std::string_view content_type,
                             std::optional<uint64_t> length, bool close, std::string_view extra);

}  // namespace caisson::guest
