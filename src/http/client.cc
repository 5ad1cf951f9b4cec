#include "http/client.h"

#include <fmt/format.h>

#include <utility>

namespace caisson::http {
namespace {

constexpr size_t kReadBytes = 64 * 1024;

std::string SerializeHead(const RequestHead& head, std::string_view framing) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\n", head.method, head.target);
  for (const Header& field : head.headers.fields()) {
    text += fmt::format("{}: {}\r\n", field.name, field.value);
  }
  text += framing;
  text += "\r\n";
  return text;
}

// A line break in a header would let its value forge the rest of the message.
Result<void> CheckHead(const RequestHead& head) {
  auto bad = [](std::string_view text) {
    return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
  };
  bool found = bad(head.method) || bad(head.target) || head.target.find(' ') != std::string::npos;
  for (const Header& field : head.headers.fields()) {
    found = found || field.name.empty() || bad(field.name) || bad(field.value);
  }
  if (found) return Fail(ErrorCode::kInvalidArgument, "a request header contains a line break");
  return {};
}

}  // namespace

ClientConnection::ClientConnection(net::StreamPtr stream, ParseLimits limits)
    : stream_(std::move(stream)), limits_(limits) {}
ClientConnection::~ClientConnection() = default;

Task<Result<ResponseHead>> ClientConnection::Send(RequestHead head, std::string_view body,
                                                  Until until) {
  CAISSON_CO_TRY(CheckHead(head));
  used_ = true;
  head_request_ = head.method == "HEAD";
  std::string text = SerializeHead(head, fmt::format("Content-Length: {}\r\n", body.size()));
  // Small bodies go out in one segment with the header.
  if (body.size() <= kReadBytes) text += body;
  auto sent = co_await stream_->Write(text, until);
  if (sent && body.size() > kReadBytes) sent = co_await stream_->Write(body, until);
  // A peer that refuses early may close while the body is on its way; its answer is worth more
  // than the broken pipe.
  if (!sent && sent.error().code != ErrorCode::kConnectionLost) {
    broken_ = true;
    co_return Fail(sent.error());
  }
  auto response = co_await ReadHead(until);
  if (!sent) broken_ = true;
  co_return response;
}

Task<Result<ResponseHead>> ClientConnection::SendStream(RequestHead head, BodySource& body,
                                                        std::optional<uint64_t> length,
                                                        Until until) {
  CAISSON_CO_TRY(CheckHead(head));
  used_ = true;
  head_request_ = head.method == "HEAD";
  std::string framing = length.has_value() ? fmt::format("Content-Length: {}\r\n", *length)
                                           : "Transfer-Encoding: chunked\r\n";
  auto sent = co_await stream_->Write(SerializeHead(head, framing), until);
  uint64_t total = 0;
  while (sent) {
    auto piece = co_await body.Next(until);
    if (!piece) {
      broken_ = true;  // the message on the wire is incomplete
      co_return Fail(piece.error());
    }
    total += piece->size();
    if (piece->empty()) {
      if (!length.has_value()) sent = co_await stream_->Write("0\r\n\r\n", until);
      break;
    }
    if (length.has_value() && total > *length) break;
    if (!length.has_value()) {
      sent = co_await stream_->Write(fmt::format("{:x}\r\n", piece->size()), until);
    }
    if (sent) sent = co_await stream_->Write(*piece, until);
    if (sent && !length.has_value()) sent = co_await stream_->Write("\r\n", until);
  }
  if (length.has_value() && sent && total != *length) {
    broken_ = true;
    co_return Fail(ErrorCode::kInternal,
                   "a request body does not have the length it was said to have");
  }
  if (!sent && sent.error().code != ErrorCode::kConnectionLost) {
    broken_ = true;
    co_return Fail(sent.error());
  }
  auto response = co_await ReadHead(until);
  if (!sent) broken_ = true;
  co_return response;
}

Task<Result<bool>> ClientConnection::Fill(Until until) {
  size_t before = buffer_.size();
  buffer_.resize(before + kReadBytes);
  auto got = co_await stream_->Read(std::span(buffer_).subspan(before), until);
  buffer_.resize(before + (got ? *got : 0));
  if (!got) {
    broken_ = true;
    co_return Fail(got.error());
  }
  co_return *got > 0;
}

Task<Result<ResponseHead>> ClientConnection::ReadHead(Until until) {
  for (;;) {
    parser_.emplace(Parser::Response(limits_, head_request_));
    while (!parser_->head_done()) {
      auto taken = buffer_.empty() ? Result<size_t>(0) : parser_->Feed(buffer_);
      if (!taken) {
        broken_ = true;
        co_return Fail(taken.error());
      }
      buffer_.erase(0, *taken);
      if (parser_->head_done()) break;
      CAISSON_CO_ASSIGN(bool more, co_await Fill(until));
      if (!more) {
        broken_ = true;
        co_return Fail(ErrorCode::kConnectionLost,
                       "the peer closed the connection without an answer");
      }
    }
    // Interim answers (100 Continue) come before the real one.
    if (parser_->response_head().status >= 200) co_return parser_->response_head();
  }
}

Task<Result<std::string>> ClientConnection::ReadBody(Until until) {
  for (;;) {
    std::string body = parser_->TakeBody();
    if (!body.empty() || parser_->done()) co_return body;
    auto taken = buffer_.empty() ? Result<size_t>(0) : parser_->Feed(buffer_);
    if (!taken) {
      broken_ = true;
      co_return Fail(taken.error());
    }
    buffer_.erase(0, *taken);
    if (*taken > 0) continue;
    CAISSON_CO_ASSIGN(bool more, co_await Fill(until));
    if (more) continue;
    broken_ = true;
    CAISSON_CO_TRY(parser_->FeedEnd());
  }
}

Task<Result<std::string>> ClientConnection::ReadWholeBody(size_t limit, Until until) {
  std::string whole;
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await ReadBody(until));
    if (piece.empty()) co_return whole;
    if (whole.size() + piece.size() > limit) {
      broken_ = true;
      co_return Fail(ErrorCode::kBodyTooLarge,
                     fmt::format("the answer is larger than {} bytes", limit));
    }
    whole += piece;
  }
}

bool ClientConnection::reusable() const {
  if (broken_) return false;
  bool between = !used_ || (parser_.has_value() && parser_->done() && parser_->keep_alive() &&
                            buffer_.empty());
  return between && stream_->Quiet();
}

}  // namespace caisson::http
