// The server side of HTTP/1.1: connections, limits, keep-alive, draining. Routing is the api's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "http/message.h"
#include "http/parser.h"
#include "net/loop.h"
#include "net/stream.h"
#include "net/task_group.h"

namespace caisson::http {

struct ServerLimits {
  size_t header_bytes = 16 * 1024;
  size_t connections = 1024;
  Millis idle{60'000};            // between requests
  Millis header{10'000};          // from a request's first byte to the end of its header
  Millis body_progress{30'000};   // between two pieces of a body
  Millis write_progress{60'000};  // for a piece of an answer to be taken
  size_t discard_bytes =
      256 * 1024;  // of a body nobody read, before the connection is closed instead
};

class ServerConnection;

// A request being served. Lives as long as its handler runs.
class ServerRequest {
 public:
  const RequestHead& head() const { return head_; }
  std::string_view method() const { return head_.method; }
  // Decoded, without the query. Always starts with '/'.
  const std::string& path() const { return path_; }
  // Decoded; the first of a repeated name counts.
  const std::map<std::string, std::string>& query() const { return query_; }
  std::optional<std::string_view> Query(const std::string& name) const;

  // The next piece of the body, empty at its end. `100 Continue` is sent when the client waits.
  Task<Result<std::string>> ReadBody();
  // All of it; kBodyTooLarge over `limit`, before it is read where the length is announced.
  Task<Result<std::string>> ReadWholeBody(size_t limit);
  // Requested when the server wants its connections to end.
  std::stop_token stop() const { return stop_; }
  // From now on stop() is requested when the client closes its side, too: for work that is only
  // the client's. To be called when the body has been read.
  void StopWhenClientLeaves();

 private:
  friend class ServerConnection;
  RequestHead head_;
  std::string path_;
  std::map<std::string, std::string> query_;
  std::stop_token stop_;
  ServerConnection* connection_ = nullptr;
};

// The answer. Either Send once, or Start, Write…, Finish. A handler that ends without an answer
// gives a 500; one that ends in the middle of a stream closes the connection, so that nobody takes
// a part for the whole.
class ServerResponse {
 public:
  // Complete: Content-Length is added.
  Task<Result<void>> Send(int status, Headers headers, std::string body);
  // A stream, chunked.
  Task<Result<void>> Start(int status, Headers headers);
  Task<Result<void>> Write(std::string_view data);
  Task<Result<void>> Finish();
  bool started() const { return started_; }

 private:
  friend class ServerConnection;
  bool started_ = false;
  bool finished_ = false;
  ServerConnection* connection_ = nullptr;
};

using Handler = std::function<Task<void>(ServerRequest&, ServerResponse&)>;
// The answer to what cannot become a request: malformed, too large.
using ErrorBody = std::function<std::string(const Error&)>;

// Serves one listener on one loop.
class Server {
 public:
  Server(net::Loop& loop, net::Listener listener, ServerLimits limits, Handler handler,
         ErrorBody error_body);
  ~Server();

  uint16_t port() const { return port_; }
  // Starts accepting.
  void Start();
  // Stops accepting, ends idle connections at once, lets requests under way finish until the
  // deadline, then cuts them. Must be awaited before destruction.
  Task<void> Drain(Deadline deadline);

  net::Loop& loop() { return loop_; }
  const ServerLimits& limits() const { return limits_; }
  size_t connections() const { return connections_; }

 private:
  friend class ServerConnection;
  Task<void> AcceptLoop();
  Task<void> Serve(net::StreamPtr stream);
  Task<void> RefuseOverload(net::StreamPtr stream);

  net::Loop& loop_;
  net::Listener listener_;
  ServerLimits limits_;
  Handler handler_;
  ErrorBody error_body_;
  uint16_t port_ = 0;
  size_t connections_ = 0;
  bool draining_ = false;
  std::stop_source accept_stop_;
  std::stop_source idle_stop_;  // of waits between requests
  std::stop_source cut_stop_;   // of everything else, at the end of a drain
  net::TaskGroup tasks_;
};

}  // namespace caisson::http
