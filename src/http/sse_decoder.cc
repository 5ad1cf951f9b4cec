#include "http/sse_decoder.h"

#include <utility>

namespace caisson::http {

Result<std::optional<ServerSentEvent>> SseDecoder::Next() {
  for (;;) {
    // LF, CRLF and CR end a line. A LF right behind a CR that ended the line before belongs to it.
    if (after_cr_ && !buffer_.empty()) {
      if (buffer_[0] == '\n') buffer_.erase(0, 1);
      after_cr_ = false;
    }
    size_t end = buffer_.find_first_of("\r\n", scanned_);
    if (end == std::string::npos) {
      scanned_ = buffer_.size();
      if (buffer_.size() + current_.data.size() > limit_) {
        return Fail(ErrorCode::kProtocol, "a server-sent event is larger than its limit");
      }
      return std::nullopt;
    }
    std::string line = buffer_.substr(0, end);
    after_cr_ = buffer_[end] == '\r';
    buffer_.erase(0, end + 1);
    scanned_ = 0;
    if (line.empty()) {
      ServerSentEvent event = std::exchange(current_, {});
      if (std::exchange(has_data_, false)) return event;
      continue;  // an event without data is none
    }
    size_t colon = line.find(':');
    std::string_view name = std::string_view(line).substr(0, colon);
    std::string_view value;
    if (colon != std::string::npos) value = std::string_view(line).substr(colon + 1);
    if (value.starts_with(' ')) value.remove_prefix(1);
    if (name == "event") {
      current_.event = value;
    } else if (name == "data") {
      if (has_data_) current_.data += '\n';
      current_.data += value;
      has_data_ = true;
      if (current_.data.size() > limit_) {
        return Fail(ErrorCode::kProtocol, "a server-sent event is larger than its limit");
      }
    }
  }
}

}  // namespace caisson::http
