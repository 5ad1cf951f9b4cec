// The client side of one HTTP/1.1 connection: to a guest, to a model provider.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "http/message.h"
#include "http/parser.h"
#include "net/stream.h"

namespace caisson::http {

// A request's body in pieces, for what is not in memory.
class BodySource {
 public:
  virtual ~BodySource() = default;
  // The next piece, empty at the end; valid until the next call.
  virtual Task<Result<std::string_view>> Next(Until until) = 0;
};

// One request at a time: Send*, then read the body to its end, then the next if reusable().
// Belongs to the loop of its stream. After any error it is not reusable.
class ClientConnection {
 public:
  explicit ClientConnection(net::StreamPtr stream, ParseLimits limits = {});
  ~ClientConnection();

  // Content-Length (or chunked) and Connection are added; the caller gives the rest, Host too.
  // `body` must stay valid until the task yields.
  Task<Result<ResponseHead>> Send(RequestHead head, std::string_view body, Until until);
  // Chunked unless the length is known. When the peer answers before the body's end, the rest of
  // the body is not sent and the connection is not reused.
  Task<Result<ResponseHead>> SendStream(RequestHead head, BodySource& body,
                                        std::optional<uint64_t> length, Until until);

  // The next bytes of the response's body; empty at its end.
  Task<Result<std::string>> ReadBody(Until until);
  // The rest of it; kBodyTooLarge over `limit`.
  Task<Result<std::string>> ReadWholeBody(size_t limit, Until until);

  // True between requests of a connection that both sides keep open, as far as can be seen now.
  bool reusable() const;

 private:
  Task<Result<ResponseHead>> ReadHead(Until until);
  // More bytes into buffer_; false at the end of the stream.
  Task<Result<bool>> Fill(Until until);

  net::StreamPtr stream_;
  ParseLimits limits_;
  std::optional<Parser> parser_;
  std::string buffer_;  // received, not parsed yet
  bool head_request_ = false;
  bool used_ = false;
  bool broken_ = false;
};

}  // namespace caisson::http
