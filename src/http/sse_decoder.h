// Reads Server-Sent Events from bytes (WHATWG HTML, 9.2.6), without I/O.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::http {

struct ServerSentEvent {
  std::string event;  // empty where none was named
  std::string data;
};

class SseDecoder {
 public:
  // `max_event_bytes` bounds what one event may hold.
  explicit SseDecoder(size_t max_event_bytes = 8 << 20) : limit_(max_event_bytes) {}

  void Feed(std::string_view bytes) { buffer_ += bytes; }
  // The next complete event; nothing when more bytes are needed. kProtocol over the limit.
  Result<std::optional<ServerSentEvent>> Next();

 private:
  size_t limit_;
  std::string buffer_;
  size_t scanned_ = 0;
  ServerSentEvent current_;
  bool has_data_ = false;
  bool after_cr_ = false;
};

}  // namespace caisson::http
