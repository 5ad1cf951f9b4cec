// libFuzzer target: any bytes as a connection's requests, and as its responses. However they are
// cut, the parser must see the same messages, and never more of them than came or was allowed.
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>

#include "http/parser.h"

namespace {

using caisson::http::Header;
using caisson::http::ParseLimits;
using caisson::http::Parser;

enum class Kind { kRequest, kResponse, kResponseToHead };

// Small, so that they are reached.
constexpr size_t kHeaderBytes = 512;
constexpr uint64_t kBodyBytes = 64;

// The first byte chooses one: to begin at the interesting places also without a corpus.
constexpr std::string_view kBeginnings[] = {
    "",
    "GET / HTTP/1.1\r\nHost: h\r\n",
    "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n",
    "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
};

void Check(bool holds) {
  if (!holds) __builtin_trap();
}

class Connection {
 public:
  Connection(Kind kind, bool limited)
      : kind_(kind),
        limits_{kHeaderBytes, limited ? std::optional(kBodyBytes) : std::nullopt},
        parser_(Make()) {}
  // False: nothing more is taken.
  bool Receive(std::string_view piece) {
    buffer_ += piece;
    for (;;) {
      auto taken = parser_.Feed(buffer_);
      Observe();
      // A fault in what is not complete is seen at once or only when it is: see End().
      if (!taken) return Fault();
      Check(*taken <= buffer_.size());
      buffer_.erase(0, *taken);
      consumed_ += *taken;
      if (parser_.done()) {
        if (!Next()) return false;
        if (buffer_.empty()) return true;
      } else if (*taken == 0 || buffer_.empty()) {
        // What a peer can make the owner of the connection keep.
        Check(buffer_.size() <= kHeaderBytes);
        return true;
      }
    }
  }
  void End() {
    if (consumed_ > 0 || !buffer_.empty()) {
      bool whole = parser_.FeedEnd().has_value();
      Observe();
      trace_ += whole && parser_.done() ? body_ + "|end" : "|broken";
    }
  }
  const std::string& trace() const { return trace_; }

 private:
  Parser Make() const {
    return kind_ == Kind::kRequest ? Parser::Request(limits_)
                                   : Parser::Response(limits_, kind_ == Kind::kResponseToHead);
  }
  bool Fault() {
    trace_ += "|broken";
    return false;
  }
  bool Next() {
    trace_ += body_ + (parser_.keep_alive() ? "|done" : "|last");
    if (!parser_.keep_alive()) return false;
    parser_ = Make();
    consumed_ = 0;
    body_.clear();
    head_seen_ = false;
    return true;
  }
  void Observe() {
    if (!parser_.head_done()) {
      Check(parser_.TakeBody().empty());
      return;
    }
    if (!head_seen_) {
      head_seen_ = true;
      if (kind_ == Kind::kRequest) {
        trace_ += "|" + parser_.request_head().method + " " + parser_.request_head().target;
        if (parser_.expects_continue()) trace_ += "|expects";
        Fields(parser_.request_head().headers.fields());
      } else {
        trace_ += "|" + std::to_string(parser_.response_head().status);
        Fields(parser_.response_head().headers.fields());
      }
      trace_ += "|";
    }
    body_ += parser_.TakeBody();
    Check(body_.size() <= consumed_ + buffer_.size());
    Check(!limits_.body_bytes || body_.size() <= *limits_.body_bytes);
    if (kind_ == Kind::kResponseToHead) Check(body_.empty());
  }
  void Fields(const std::vector<Header>& fields) {
    size_t bytes = 0;
    for (const Header& field : fields) {
      trace_ += "|" + field.name + "=" + field.value;
      bytes += field.name.size() + field.value.size();
    }
    Check(bytes <= kHeaderBytes);
  }

  Kind kind_;
  ParseLimits limits_;
  Parser parser_;
  std::string buffer_;
  std::string trace_;
  uint64_t consumed_ = 0;  // of this message
  std::string body_;       // likewise; of a broken one it depends on the cuts how much came
  bool head_seen_ = false;
};

// The bytes in pieces of 1 to `most`.
std::string Trace(Kind kind, bool limited, std::string_view bytes, size_t most) {
  Connection connection(kind, limited);
  uint32_t state = 1;
  while (!bytes.empty()) {
    state = state * 1664525 + 1013904223;
    std::string_view piece = bytes.substr(0, 1 + (state >> 16) % most);
    bytes.remove_prefix(piece.size());
    if (!connection.Receive(piece)) return connection.trace();
  }
  connection.End();
  return connection.trace();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(kBeginnings[data[0] % std::size(kBeginnings)]);
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (Kind kind : {Kind::kRequest, Kind::kResponse, Kind::kResponseToHead}) {
    for (bool limited : {false, true}) {
      Connection at_once(kind, limited);
      if (at_once.Receive(bytes)) at_once.End();
      for (size_t most : {size_t{1}, size_t{7}, size_t{100}}) {
        std::string trace = Trace(kind, limited, bytes, most);
        if (trace == at_once.trace()) continue;
        std::fprintf(stderr, "at once: %s\nin pieces of up to %zu: %s\n", at_once.trace().c_str(),
                     most, trace.c_str());
        Check(false);
      }
    }
  }
  return 0;
}
