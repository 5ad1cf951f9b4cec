// One HTTP/1.1 message read from bytes, without I/O: Beast's parser behind a small face.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/message.h"

namespace caisson::http {

// Not thread-safe. Feed it until done(); then make a new one for the next message.
//
// Stricter than Beast where a proxy in front might read a message differently (request smuggling):
// folded header lines, a bare CR or LF, a repeated Content-Length, Content-Length together with
// Transfer-Encoding, and codings other than "chunked" are kMalformedRequest (of a response:
// kProtocol). Trailers are dropped. Limits: kHeaderTooLarge (also of what stands between the chunks
// of a body), kBodyTooLarge.
class Parser {
 public:
  static Parser Request(ParseLimits limits);
  // `no_body`: the response to HEAD.
  static Parser Response(ParseLimits limits, bool no_body);
  Parser(Parser&&) noexcept;
  Parser& operator=(Parser&&) noexcept;
  ~Parser();

  // Reads from the front of `data` and says how much it took; the rest must come again with more
  // behind it. 0 means that it needs more to go on (or that the message is done).
  Result<size_t> Feed(std::string_view data);
  // The peer closed: the end of a body without length, or an error.
  Result<void> FeedEnd();

  bool head_done() const;
  bool done() const;
  // After done(): whether another message may follow on the connection.
  bool keep_alive() const;
  // After head_done().
  RequestHead& request_head();
  ResponseHead& response_head();
  // A request's `Expect: 100-continue`.
  bool expects_continue() const;
  // The decoded body bytes since the last call; the caller bounds them by how much it feeds.
  std::string TakeBody();

 private:
  struct Impl;
  explicit Parser(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace caisson::http
