#include "http/server.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace caisson::http {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kWatchBytes = 4096;

// Splits a target in origin form. Nothing when it is not one, or an escape is malformed.
struct Target {
  std::string path;
  std::map<std::string, std::string> query;
};
std::optional<Target> ParseTarget(std::string_view text) {
  if (!text.starts_with('/') || text.find('#') != std::string_view::npos) return std::nullopt;
  size_t mark = text.find('?');
  auto path = PercentDecode(text.substr(0, mark));
  if (!path || path->find('\0') != std::string::npos) return std::nullopt;
  Target target{std::move(*path), {}};
  std::string_view rest = mark == std::string_view::npos ? "" : text.substr(mark + 1);
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    size_t equals = item.find('=');
    auto name = PercentDecode(item.substr(0, equals));
    auto value = PercentDecode(equals == std::string_view::npos ? "" : item.substr(equals + 1));
    if (!name || !value) return std::nullopt;
    target.query.emplace(std::move(*name), std::move(*value));
  }
  return target;
}

}  // namespace

// One connection: reads a request, has it handled, and again.
class ServerConnection {
 public:
  ServerConnection(Server& server, net::StreamPtr stream)
      : server_(server), stream_(std::move(stream)) {}

  Task<void> Run() {
    while (!closing_) {
      auto ready = co_await ReadHead();
      if (!ready) {
        co_await AnswerFault(ready.error());
        co_return;
      }
      if (!*ready) co_return;  // the peer is done
      co_await HandleOne();
    }
  }

  Task<Result<std::string>> ReadBody() {
    if (parser_->expects_continue() && !continue_sent_ && !body_read_) {
      continue_sent_ = true;
      CAISSON_CO_TRY(co_await Write("HTTP/1.1 100 Continue\r\n\r\n"));
    }
    body_read_ = true;
    for (;;) {
      std::string body = parser_->TakeBody();
      if (!body.empty() || parser_->done()) co_return body;
      if (!buffer_.empty()) {
        auto taken = parser_->Feed(buffer_);
        if (!taken) {
          closing_ = true;
          co_return Fail(taken.error());
        }
        buffer_.erase(0, *taken);
        if (*taken > 0) continue;
      }
      CAISSON_CO_ASSIGN(bool more, co_await Fill(Busy(server_.limits().body_progress)));
      if (!more) {
        closing_ = true;
        co_return Fail(ErrorCode::kConnectionLost, "the client closed in the middle of its body");
      }
    }
  }

  Task<Result<void>> SendWhole(ServerResponse& response, int status, const Headers& headers,
                               std::string_view body) {
    std::string text = Head(status, headers);
    text += fmt::format("Content-Length: {}\r\n\r\n", body.size());
    if (!head_only_) text += body;
    response.started_ = true;
    response.finished_ = true;
    co_return co_await Write(text);
  }

  Task<Result<void>> Start(ServerResponse& response, int status, const Headers& headers) {
    response.started_ = true;
    std::string text = Head(status, headers);
    text += "Transfer-Encoding: chunked\r\n\r\n";
    co_return co_await Write(text);
  }

  Task<Result<void>> WriteChunk(std::string_view data) {
    if (data.empty() || head_only_) co_return Result<void>();
    // Small pieces go in one segment; large ones are not copied.
    std::string prefix = fmt::format("{:x}\r\n", data.size());
    if (data.size() <= kReadBytes) {
      prefix += data;
      prefix += "\r\n";
      co_return co_await Write(prefix);
    }
    CAISSON_CO_TRY(co_await Write(prefix));
    CAISSON_CO_TRY(co_await Write(data));
    co_return co_await Write("\r\n");
  }

  Task<Result<void>> Finish(ServerResponse& response) {
    response.finished_ = true;
    if (head_only_) co_return Result<void>();
    co_return co_await Write("0\r\n\r\n");
  }

  std::stop_token WatchClient() {
    if (!watch_.has_value()) {
      watch_.emplace(server_.idle_stop_.get_token());
      // Bytes behind the body are the next request: that client has not left.
      if (parser_->done() && buffer_.empty()) watch_->tasks.Start(WaitForEnd());
    }
    return watch_->gone.get_token();
  }

 private:
  // The wait for the client's end beside a handler.
  struct Watch {
    explicit Watch(std::stop_token server) : linked(std::move(server), Forward{&gone}) {}
    struct Forward {
      std::stop_source* to;
      void operator()() const { to->request_stop(); }
    };
    std::stop_source gone;
    std::stop_callback<Forward> linked;
    net::TaskGroup tasks;
  };

  Task<void> WaitForEnd() {
    std::string piece(kWatchBytes, '\0');
    auto got = co_await stream_->Read(piece, Until(Deadline::Never(), watch_->tasks.stop()));
    if (got && *got > 0) {  // the next request, early
      buffer_.append(piece, 0, *got);
      co_return;
    }
    if (!got && got.error().code == ErrorCode::kCancelled) co_return;  // the handler is done
    closing_ = true;
    watch_->gone.request_stop();
  }

  Until Busy(Millis timeout) const {
    return {Deadline::After(server_.loop().clock(), timeout), server_.cut_stop_.get_token()};
  }

  Task<Result<void>> Write(std::string_view data) {
    auto written = co_await stream_->Write(data, Busy(server_.limits().write_progress));
    if (!written) closing_ = true;
    co_return written;
  }

  Task<Result<bool>> Fill(Until until) {
    size_t before = buffer_.size();
    buffer_.resize(before + kReadBytes);
    auto got = co_await stream_->Read(std::span(buffer_).subspan(before), std::move(until));
    buffer_.resize(before + (got ? *got : 0));
    if (!got) {
      closing_ = true;
      co_return Fail(got.error());
    }
    co_return *got > 0;
  }

  // True: a header is there. False: nothing came and nothing will.
  Task<Result<bool>> ReadHead() {
    ParseLimits limits;
    limits.header_bytes = server_.limits().header_bytes;
    parser_.emplace(Parser::Request(limits));
    continue_sent_ = false;
    body_read_ = false;
    if (buffer_.empty()) {
      const ServerLimits& server_limits = server_.limits();
      auto first = co_await Fill({Deadline::After(server_.loop().clock(), server_limits.idle),
                                  server_.idle_stop_.get_token()});
      if (!first || !*first) co_return false;
    }
    Until until = Busy(server_.limits().header);
    while (!parser_->head_done()) {
      CAISSON_CO_ASSIGN(size_t taken, parser_->Feed(buffer_));
      buffer_.erase(0, taken);
      if (parser_->head_done()) break;
      CAISSON_CO_ASSIGN(bool more, co_await Fill(until));
      if (!more) co_return false;
    }
    co_return true;
  }

  Task<void> HandleOne() {
    ServerRequest request;
    ServerResponse response;
    request.connection_ = this;
    response.connection_ = this;
    request.head_ = std::move(parser_->request_head());
    request.stop_ = server_.idle_stop_.get_token();
    head_only_ = request.head_.method == "HEAD";
    if (request.head_.headers.Count("host") != 1) {
      co_await AnswerFault({ErrorCode::kMalformedRequest,
                            "a request has exactly one Host header",
                            {},
                            std::nullopt});
      co_return;
    }
    auto target = ParseTarget(request.head_.target);
    if (!target) {
      co_await AnswerFault(
          {ErrorCode::kMalformedRequest, "the request target is malformed", {}, std::nullopt});
      co_return;
    }
    request.path_ = std::move(target->path);
    request.query_ = std::move(target->query);
    co_await server_.handler_(request, response);
    if (watch_.has_value()) {
      watch_->tasks.RequestStop();
      co_await watch_->tasks.Join();
      watch_.reset();
    }
    if (!response.started_) {
      co_await AnswerFault(
          {ErrorCode::kInternal, "the request was not answered", {}, std::nullopt});
      co_return;
    }
    if (!response.finished_) closing_ = true;
    if (!closing_) co_await DiscardBody();
    if (!closing_ && !parser_->keep_alive()) closing_ = true;
    if (server_.draining_) closing_ = true;
  }

  // What the handler did not read must be out of the way before the next request.
  Task<void> DiscardBody() {
    // A client that waits for 100 Continue has not sent its body: it cannot be told from the next
    // request, so the connection ends.
    if (parser_->expects_continue() && !continue_sent_ && !parser_->done()) closing_ = true;
    size_t discarded = 0;
    while (!closing_ && !parser_->done()) {
      auto piece = co_await ReadBody();
      if (!piece) break;
      discarded += piece->size();
      if (discarded > server_.limits().discard_bytes) closing_ = true;
    }
  }

  Task<void> AnswerFault(Error error) {
    closing_ = true;
    // Nobody listens where the fault is the connection's own.
    if (error.code == ErrorCode::kConnectionLost || error.code == ErrorCode::kCancelled) co_return;
    int status = error.code == ErrorCode::kDeadlineExceeded ? 408 : InfoOf(error.code).http_status;
    std::string body = server_.error_body_(error);
    std::string text = Head(status, {{"Content-Type", "application/problem+json"}});
    text += fmt::format("Content-Length: {}\r\n\r\n{}", body.size(), body);
    (void)co_await Write(text);
    // A client that still sends would otherwise get a reset instead of the answer.
    (void)co_await stream_->CloseWrite(Busy(Millis(1000)));
    size_t discarded = 0;
    Until until = Busy(Millis(2000));
    while (discarded < server_.limits().discard_bytes) {
      buffer_.clear();
      auto more = co_await Fill(until);
      if (!more || !*more) break;
      discarded += buffer_.size();
    }
  }

  std::string Head(int status, const Headers& headers) const {
    std::string text = fmt::format("HTTP/1.1 {} {}\r\n", status, ReasonPhrase(status));
    for (const Header& field : headers.fields()) {
      text += fmt::format("{}: {}\r\n", field.name, field.value);
    }
    if (closing_ || server_.draining_ || !parser_->head_done()) text += "Connection: close\r\n";
    return text;
  }

  Server& server_;
  net::StreamPtr stream_;
  std::optional<Parser> parser_;
  std::string buffer_;
  std::optional<Watch> watch_;
  bool closing_ = false;
  bool head_only_ = false;
  bool continue_sent_ = false;
  bool body_read_ = false;
};

std::optional<std::string_view> ServerRequest::Query(const std::string& name) const {
  auto found = query_.find(name);
  if (found == query_.end()) return std::nullopt;
  return found->second;
}

void ServerRequest::StopWhenClientLeaves() { stop_ = connection_->WatchClient(); }

Task<Result<std::string>> ServerRequest::ReadBody() { return connection_->ReadBody(); }

Task<Result<std::string>> ServerRequest::ReadWholeBody(size_t limit) {
  auto too_large = [&] {
    return Fail(ErrorCode::kBodyTooLarge, fmt::format("the body is larger than {} bytes", limit));
  };
  if (auto text = head_.headers.Find("content-length")) {
    uint64_t length = 0;
    auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
    if (parsed.ec != std::errc() || length > limit) co_return too_large();
  }
  std::string whole;
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await ReadBody());
    if (piece.empty()) co_return whole;
    if (whole.size() + piece.size() > limit) co_return too_large();
    whole += piece;
  }
}

Task<Result<void>> ServerResponse::Send(int status, Headers headers, std::string body) {
  if (started_) co_return Fail(ErrorCode::kInternal, "a request was answered twice");
  co_return co_await connection_->SendWhole(*this, status, headers, body);
}
Task<Result<void>> ServerResponse::Start(int status, Headers headers) {
  if (started_) co_return Fail(ErrorCode::kInternal, "a request was answered twice");
  co_return co_await connection_->Start(*this, status, headers);
}
Task<Result<void>> ServerResponse::Write(std::string_view data) {
  return connection_->WriteChunk(data);
}
Task<Result<void>> ServerResponse::Finish() { return connection_->Finish(*this); }

Server::Server(net::Loop& loop, net::Listener listener, ServerLimits limits, Handler handler,
               ErrorBody error_body)
    : loop_(loop),
      listener_(std::move(listener)),
      limits_(limits),
      handler_(std::move(handler)),
      error_body_(std::move(error_body)),
      port_(listener_.Port().value_or(0)) {}
Server::~Server() = default;

void Server::Start() { tasks_.Start(AcceptLoop()); }

Task<void> Server::AcceptLoop() {
  for (;;) {
    auto stream = co_await listener_.Accept(Until(Deadline::Never(), accept_stop_.get_token()));
    if (!stream) {
      if (stream.error().code == ErrorCode::kCancelled) co_return;
      continue;
    }
    if (connections_ >= limits_.connections) {
      tasks_.Start(RefuseOverload(std::move(*stream)));
    } else {
      tasks_.Start(Serve(std::move(*stream)));
    }
  }
}

Task<void> Server::Serve(net::StreamPtr stream) {
  connections_++;
  {
    ServerConnection connection(*this, std::move(stream));
    co_await connection.Run();
  }
  connections_--;
}

Task<void> Server::RefuseOverload(net::StreamPtr stream) {
  std::string body =
      error_body_({ErrorCode::kOverloaded,
                   fmt::format("all {} connections are in use; try again", limits_.connections),
                   {},
                   std::nullopt});
  std::string text = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
      "Retry-After: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      body.size(), body);
  (void)co_await stream->Write(text, Until(Deadline::After(loop_.clock(), Millis(1000))));
}

Task<void> Server::Drain(Deadline deadline) {
  draining_ = true;
  accept_stop_.request_stop();
  idle_stop_.request_stop();
  while (connections_ > 0 && !deadline.Passed(loop_.clock())) {
    Deadline step = Deadline::After(loop_.clock(), Millis(10)).Earlier(deadline);
    (void)co_await loop_.Sleep(Until(step));
  }
  cut_stop_.request_stop();
  co_await tasks_.Join();
}

}  // namespace caisson::http
