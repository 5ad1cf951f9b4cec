// One stream of the channel: reads requests, writes replies, one at a time, with bounded buffers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/http.h"
#include "guest/loop.h"

namespace caisson::guest {

class Connection;

// Takes a request body piece by piece. Destroyed early when the stream breaks.
class BodySink {
 public:
  virtual ~BodySink() = default;
  // Returns how many bytes it took. Fewer than given means: not now; it calls
  // Connection::ResumeBody when it can take more. It may reply to the connection at any time,
  // after which it gets no more.
  virtual size_t OnBody(Connection& connection, std::string_view bytes) = 0;
  // The body is complete; a reply is owed.
  virtual void OnBodyEnd(Connection& connection) = 0;
};

// Gives a reply's body piece by piece. Destroyed when the reply is over or the stream breaks.
class BodySource {
 public:
  enum class State : uint8_t {
    kMore,   // something was added, or may be at once
    kWait,   // nothing now; it calls Connection::ResumeReply later
    kEnd,    // that was all
    kAbort,  // the body cannot be completed; the stream is cut so that the peer notices
  };
  virtual ~BodySource() = default;
  // Appends at most about `room` bytes to `out`.
  virtual State Pull(std::string& out, size_t room) = 0;
};

// What a connection asks of its owner.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  // The header is read. The host replies at once, or gives the body a place by TakeJson or
  // TakeStream.
  virtual void OnRequest(Connection& connection) = 0;
  // The stream is closed; the connection is destroyed after this round.
  virtual void OnClosed(Connection& connection) = 0;
};

class Connection {
 public:
  Connection(Loop& loop, ConnectionHost& host, UniqueFd fd, uint64_t id);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<void> Start();

  uint64_t id() const { return id_; }
  const HttpRequest& request() const { return parser_.request(); }
  int64_t arrived_ms() const { return arrived_ms_; }
  bool closed() const { return phase_ == Phase::kClosed; }

  // From OnRequest only: the body is collected (at most `limit` bytes, else `body_too_large`) and
  // given to `then`; or streamed into `sink`.
  void TakeWhole(size_t limit, std::function<void(Connection&, std::string body)> then);
  void TakeStream(std::unique_ptr<BodySink> sink);
  void ResumeBody();

  // Exactly one reply a request. `extra` is "Name: value\r\n" lines.
  void Reply(int status, std::string_view content_type, std::string_view body,
             std::string_view extra = {});
  void ReplyJson(int status, std::string_view json) { Reply(status, "application/json", json); }
  void ReplyError(const Error& error, std::optional<std::string_view> path = std::nullopt);
  // `length` absent: chunked.
  void ReplyStream(int status, std::string_view content_type, std::optional<uint64_t> length,
                   std::unique_ptr<BodySource> source, std::string_view extra = {});
  void ResumeReply();

  // The reply after the next one closes the stream.
  void CloseAfterReply() { close_after_ = true; }
  // Runs once, when this reply has been written or the stream broke before that.
  void OnReplyOver(std::function<void(bool complete)> callback);
  void Close();

 private:
  enum class Phase : uint8_t {
    kHeader,   // waiting for or reading a header
    kBody,     // reading a body
    kReply,    // the request is read; a reply is being made or written
    kLinger,   // the reply is written, the peer still sends: what comes is thrown away
    kClosed,
  };

  void OnEvents(uint32_t events);
  void ReadSome();
  void Advance();  // drives the parser over what is in in_
  void DeliverBody();
  void BeginReply();
  void Flush();
  void FinishReply();
  void UpdateInterest();
  void FailMessage();

  Loop& loop_;
  ConnectionHost& host_;
  UniqueFd fd_;
  const uint64_t id_;
  Phase phase_ = Phase::kHeader;
  HttpParser parser_;
  std::string in_;
  size_t in_at_ = 0;
  std::string_view undelivered_;  // of the current body piece; a view into in_
  bool body_over_ = true;
  bool replied_ = false;
  bool discard_ = false;  // the reply came first: what is left of the body is thrown away
  uint64_t discarded_ = 0;
  bool close_after_ = false;
  bool advancing_ = false;
  bool flushing_ = false;
  int64_t arrived_ms_ = 0;

  size_t whole_limit_ = 0;
  std::string whole_;
  std::function<void(Connection&, std::string)> then_;
  std::unique_ptr<BodySink> sink_;

  std::string out_;
  size_t out_at_ = 0;
  bool chunked_ = false;
  bool source_waits_ = false;
  std::unique_ptr<BodySource> source_;
  std::function<void(bool)> on_over_;
  Loop::TimerId timer_;  // for a header that never ends, and for lingering
};

// The JSON body of an error reply.
std::string ErrorBody(const Error& error, std::optional<std::string_view> path);

}  // namespace caisson::guest
