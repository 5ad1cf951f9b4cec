#include "guest/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "guest/json.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kReadBytes = 128 * 1024;
constexpr size_t kHighWater = 128 * 1024;     // of unwritten reply bytes
constexpr size_t kWorkBytes = 1024 * 1024;    // written in one round
constexpr uint64_t kMaxDiscard = 256 * 1024;  // of a body that nobody wants, before the stream goes
constexpr int64_t kHeaderTimeoutMs = 30'000;
constexpr int64_t kLingerMs = 1'000;
constexpr size_t kChunkHead = 10;  // "XXXXXXXX\r\n"

void PatchChunkHead(char* head, size_t size) {
  constexpr std::string_view kHex = "0123456789abcdef";
  for (size_t i = 0; i < 8; i++) head[i] = kHex[(size >> (28 - 4 * i)) & 15];
  head[8] = '\r';
  head[9] = '\n';
}

// What stands on the call stack is destroyed after this round.
template <typename T>
void Retire(Loop& loop, std::unique_ptr<T> object) {
  if (T* raw = object.release()) loop.Defer([raw] { delete raw; });
}

}  // namespace

std::string ErrorBody(const Error& error, std::optional<std::string_view> path) {
  JsonWriter json;
  json.BeginObject().Field("code", error.wire()).Bytes("message", error.message);
  if (path) json.Bytes("path", *path);
  if (!error.cause.empty()) json.Field("errno", error.cause);
  json.EndObject();
  return json.Take();
}

Connection::Connection(Loop& loop, ConnectionHost& host, UniqueFd fd, uint64_t id)
    : loop_(loop), host_(host), fd_(std::move(fd)), id_(id) {}

Connection::~Connection() {
  loop_.Cancel(timer_);
  loop_.Forget(fd_.get());
}

Result<void> Connection::Start() {
  return loop_.Watch(fd_.get(), EPOLLIN, [this](uint32_t events) { OnEvents(events); });
}

void Connection::OnEvents(uint32_t events) {
  if (phase_ == Phase::kClosed) return;
  if ((events & EPOLLERR) != 0 ||
      (phase_ == Phase::kReply && (events & (EPOLLRDHUP | EPOLLHUP)) != 0)) {
    Close();
    return;
  }
  if ((events & EPOLLOUT) != 0) Flush();
  if (phase_ != Phase::kClosed && phase_ != Phase::kReply && (events & (EPOLLIN | EPOLLHUP)) != 0) {
    if (undelivered_.empty()) {
      ReadSome();
    } else if ((events & EPOLLHUP) != 0) {
      Close();
    }
  }
  UpdateInterest();
}

void Connection::ReadSome() {
  if (in_at_ == in_.size()) {
    in_.clear();
  } else if (in_at_ > 0) {
    in_.erase(0, in_at_);
  }
  in_at_ = 0;
  size_t used = in_.size();
  // A first read is small: most requests are, and 64 streams may wait.
  size_t want = phase_ == Phase::kHeader ? size_t{16 * 1024} : kReadBytes;
  in_.resize(used + want);
  ssize_t got = ::read(fd_.get(), in_.data() + used, want);
  in_.resize(used + (got > 0 ? static_cast<size_t>(got) : 0));
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    Close();
    return;
  }
  if (phase_ == Phase::kLinger) {
    in_.clear();
    return;
  }
  Advance();
}

void Connection::Advance() {
  if (advancing_) return;
  advancing_ = true;
  bool more = true;
  while (more) {
    switch (phase_) {
      case Phase::kHeader:
      case Phase::kBody: {
        if (!undelivered_.empty()) {
          DeliverBody();
          // A sink that replies has given the rest up: it is thrown away at once.
          if (!undelivered_.empty() && !discard_) more = false;
          break;
        }
        std::string_view view = std::string_view(in_).substr(in_at_);
        HttpParser::Event event = parser_.Next(view);
        in_at_ = in_.size() - view.size();
        switch (event) {
          case HttpParser::Event::kNeedMore:
            if (phase_ == Phase::kHeader && !parser_.idle() && timer_.serial == 0) {
              timer_ = loop_.After(kHeaderTimeoutMs, [this] { Close(); });
            }
            more = false;
            break;
          case HttpParser::Event::kError:
            FailMessage();
            more = false;
            break;
          case HttpParser::Event::kHeader:
            loop_.Cancel(timer_);
            arrived_ms_ = MonotonicMs();
            phase_ = Phase::kBody;
            body_over_ = replied_ = discard_ = false;
            discarded_ = 0;
            close_after_ = parser_.request().close;
            host_.OnRequest(*this);
            break;
          case HttpParser::Event::kBody:
            undelivered_ = parser_.body();
            break;
          case HttpParser::Event::kEnd:
            body_over_ = true;
            phase_ = Phase::kReply;
            if (discard_) {
              if (out_at_ == out_.size() && !source_) FinishReply();
            } else if (sink_) {
              sink_->OnBodyEnd(*this);
            } else if (then_) {
              auto then = std::exchange(then_, nullptr);
              then(*this, std::exchange(whole_, {}));
            }
            break;
        }
        break;
      }
      default:
        more = false;
    }
  }
  advancing_ = false;
  if (phase_ == Phase::kHeader && in_at_ == in_.size() && in_.capacity() > 4096) {
    in_ = std::string();
    in_at_ = 0;
  }
}

void Connection::DeliverBody() {
  if (discard_) {
    discarded_ += undelivered_.size();
    undelivered_ = {};
    if (discarded_ > kMaxDiscard) {
      // The reply may still be under way; FinishReply closes then.
      close_after_ = true;
      phase_ = Phase::kReply;
      if (out_at_ == out_.size() && !source_) FinishReply();
    }
    return;
  }
  if (sink_) {
    size_t taken = sink_->OnBody(*this, undelivered_);
    if (phase_ == Phase::kClosed || discard_) return;
    undelivered_.remove_prefix(taken);
    return;
  }
  if (whole_.size() + undelivered_.size() > whole_limit_) {
    close_after_ = true;
    ReplyError(Error{ErrorCode::kBodyTooLarge,
                     "the body exceeds " + Decimal(static_cast<int64_t>(whole_limit_)) + " bytes",
                     {},
                     std::nullopt});
    return;
  }
  whole_.append(undelivered_);
  undelivered_ = {};
}

void Connection::FailMessage() {
  close_after_ = true;
  phase_ = Phase::kReply;
  if (replied_) {
    // An answer is under way already; it is completed, and the stream goes with it.
    if (out_at_ == out_.size() && !source_) FinishReply();
    return;
  }
  ReplyError(parser_.error());
}

void Connection::TakeWhole(size_t limit, std::function<void(Connection&, std::string)> then) {
  const HttpRequest& message = parser_.request();
  if (message.content_length.value_or(0) > limit) {
    close_after_ = true;
    ReplyError(Error{ErrorCode::kBodyTooLarge,
                     "the body exceeds " + Decimal(static_cast<int64_t>(limit)) + " bytes",
                     {},
                     std::nullopt});
    return;
  }
  whole_limit_ = limit;
  then_ = std::move(then);
  if (message.expect_continue && in_at_ == in_.size() && message.has_body()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
}

void Connection::TakeStream(std::unique_ptr<BodySink> sink) {
  sink_ = std::move(sink);
  const HttpRequest& message = parser_.request();
  if (message.expect_continue && in_at_ == in_.size() && message.has_body()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Flush();
  }
}

void Connection::ResumeBody() {
  if (phase_ != Phase::kBody) return;
  Advance();
  UpdateInterest();
}

void Connection::BeginReply() {
  replied_ = true;
  if (!body_over_) {
    // A peer that waits for "100 Continue" does not say whether the body comes after all.
    if (parser_.request().expect_continue && undelivered_.empty()) close_after_ = true;
    discard_ = true;
    then_ = nullptr;
    whole_ = std::string();
  }
  Retire(loop_, std::move(sink_));
}

void Connection::Reply(int status, std::string_view content_type, std::string_view body,
                       std::string_view extra) {
  if (replied_ || phase_ == Phase::kClosed) return;
  BeginReply();
  out_ += HttpResponseHead(status, content_type, body.size(), close_after_, extra);
  out_ += body;
  Flush();
  UpdateInterest();
}

void Connection::ReplyError(const Error& error, std::optional<std::string_view> path) {
  ReplyJson(InfoOf(error.code).http_status, ErrorBody(error, path));
}

void Connection::ReplyStream(int status, std::string_view content_type,
                             std::optional<uint64_t> length, std::unique_ptr<BodySource> source,
                             std::string_view extra) {
  if (replied_ || phase_ == Phase::kClosed) return;
  BeginReply();
  out_ += HttpResponseHead(status, content_type, length, close_after_, extra);
  chunked_ = !length.has_value();
  source_ = std::move(source);
  source_waits_ = false;
  Flush();
  UpdateInterest();
}

void Connection::ResumeReply() {
  if (phase_ == Phase::kClosed || !source_) return;
  source_waits_ = false;
  if (flushing_) return;
  Flush();
  UpdateInterest();
}

void Connection::Flush() {
  if (flushing_ || phase_ == Phase::kClosed) return;
  flushing_ = true;
  size_t written = 0;
  bool broken = false;
  while (written < kWorkBytes) {
    while (source_ && !source_waits_ && out_.size() - out_at_ < kHighWater) {
      if (out_at_ > kHighWater) {
        out_.erase(0, out_at_);
        out_at_ = 0;
      }
      size_t start = out_.size();
      if (chunked_) out_.append(kChunkHead, '0');
      size_t room = kHighWater - (start - out_at_);
      BodySource::State state = source_->Pull(out_, room);
      size_t added = out_.size() - start - (chunked_ ? kChunkHead : 0);
      if (chunked_ && added > 0) {
        PatchChunkHead(out_.data() + start, added);
        out_ += "\r\n";
      } else if (chunked_) {
        out_.resize(start);
      }
      if (state == BodySource::State::kEnd) {
        if (chunked_) out_ += "0\r\n\r\n";
        Retire(loop_, std::move(source_));
      } else if (state == BodySource::State::kAbort) {
        broken = true;
        break;
      } else if (state == BodySource::State::kWait) {
        source_waits_ = true;
      }
    }
    if (broken || out_at_ == out_.size()) break;
    ssize_t sent = ::send(fd_.get(), out_.data() + out_at_, out_.size() - out_at_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      broken = errno != EAGAIN;
      break;
    }
    out_at_ += static_cast<size_t>(sent);
    written += static_cast<size_t>(sent);
    if (out_at_ == out_.size()) {
      out_.clear();
      out_at_ = 0;
    }
  }
  flushing_ = false;
  if (broken) {
    Close();
  } else if (replied_ && !source_ && out_at_ == out_.size() && phase_ != Phase::kLinger) {
    FinishReply();
  }
}

void Connection::OnReplyOver(std::function<void(bool)> callback) { on_over_ = std::move(callback); }

void Connection::FinishReply() {
  if (!body_over_ && phase_ == Phase::kBody && !close_after_) {
    // Advance discards the rest. When what waits was held back by a sink that is gone now, no event
    // would bring it there.
    if (!advancing_) Advance();
    return;
  }
  if (auto over = std::exchange(on_over_, nullptr)) over(true);
  if (phase_ == Phase::kClosed) return;
  out_ = std::string();
  out_at_ = 0;
  if (close_after_) {
    // Closing with unread bytes would reset the stream and could take the reply with it.
    ::shutdown(fd_.get(), SHUT_WR);
    phase_ = Phase::kLinger;
    undelivered_ = {};
    in_.clear();
    in_at_ = 0;
    loop_.Cancel(timer_);
    timer_ = loop_.After(kLingerMs, [this] { Close(); });
    UpdateInterest();
    return;
  }
  parser_.Reset();
  replied_ = false;
  phase_ = Phase::kHeader;
  UpdateInterest();
  // What has arrived already is parsed from the top of the stack, not from inside this reply.
  if (!advancing_) Advance();
}

void Connection::UpdateInterest() {
  if (phase_ == Phase::kClosed) return;
  uint32_t events = 0;
  if (phase_ == Phase::kHeader || phase_ == Phase::kLinger ||
      (phase_ == Phase::kBody && undelivered_.empty())) {
    events |= EPOLLIN;
  }
  if (phase_ == Phase::kReply) events |= EPOLLRDHUP;
  bool pending = out_at_ < out_.size() || (source_ && !source_waits_);
  if (pending) events |= EPOLLOUT;
  loop_.Modify(fd_.get(), events);
}

void Connection::Close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  loop_.Cancel(timer_);
  loop_.Forget(fd_.get());
  fd_.reset();
  undelivered_ = {};
  Retire(loop_, std::move(sink_));
  Retire(loop_, std::move(source_));
  then_ = nullptr;
  if (auto over = std::exchange(on_over_, nullptr)) over(false);
  host_.OnClosed(*this);
}

}  // namespace caisson::guest
