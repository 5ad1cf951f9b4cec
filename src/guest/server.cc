#include "guest/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {

void Server::Route(std::string_view method, std::string_view path, Handler handler, Access access) {
  routes_.push_back(RouteEntry{method, path, std::move(handler), access});
}

void Server::RoutePrefix(std::string_view path, Handler handler) {
  routes_.push_back(RouteEntry{{}, path, std::move(handler), Access{}});
}

Result<void> Server::Listen(int listener) {
  return loop_.Watch(listener, EPOLLIN, [this, listener](uint32_t) { Accept(listener); });
}

void Server::Accept(int listener) {
  // A few at a time: the listener stays readable if more wait.
  for (int i = 0; i < 16; i++) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    if (connections_.size() >= kMaxConnections) {
      std::string body = ErrorBody(
          Error{ErrorCode::kOverloaded, "64 streams are open", {}, std::nullopt}, std::nullopt);
      std::string reply = HttpResponseHead(503, kMediaJson, body.size(), true, {}) + body;
      // An empty socket buffer takes this whole; a peer that went away needs no answer.
      (void)::send(fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
      ::shutdown(fd.get(), SHUT_WR);
      continue;
    }
    uint64_t id = next_connection_++;
    auto connection = std::make_unique<Connection>(loop_, *this, std::move(fd), id);
    if (connection->Start()) connections_.emplace(id, std::move(connection));
  }
}

Connection* Server::Find(uint64_t connection_id) {
  auto it = connections_.find(connection_id);
  if (it == connections_.end() || it->second->closed()) return nullptr;
  return it->second.get();
}

void Server::OnClosed(Connection& connection) {
  uint64_t id = connection.id();
  loop_.Defer([this, id] { connections_.erase(id); });
}

void Server::MarkUnclean(std::string reason) {
  if (unclean_reason_.empty()) unclean_reason_ = std::move(reason);
}

bool Server::Admit(Connection& connection, const Access& access) {
  auto refuse = [&](ErrorCode code, std::string message) {
    connection.ReplyError(Error{code, std::move(message), {}, std::nullopt});
    return false;
  };
  const HttpRequest& request = connection.request();
  if (!access.open) {
    const std::string* authorization = request.Header(kHeaderAuthorization);
    constexpr std::string_view kScheme = "Bearer ";
    if (authorization == nullptr || !authorization->starts_with(kScheme) ||
        !EqualConstantTime(std::string_view(*authorization).substr(kScheme.size()), token_)) {
      return refuse(ErrorCode::kUnauthenticated, "the token is missing or wrong");
    }
  }
  if (unclean() && !access.while_unclean) {
    return refuse(ErrorCode::kSandboxUnclean, unclean_reason_);
  }
  if (request.method != "GET") {
    uint64_t fence = 0;
    if (const std::string* text = request.Header(kHeaderFence)) {
      auto number = ParseDecimal(*text);
      if (!number) return refuse(ErrorCode::kInvalidArgument, "Caisson-Fence is not a number");
      fence = *number;
    }
    if (fence < fence_) {
      return refuse(ErrorCode::kStaleOwner, "a call with a higher fence was seen");
    }
    fence_ = fence;
  }
  return true;
}

void Server::OnRequest(Connection& connection) {
  const HttpRequest& request = connection.request();
  std::string_view path = request.path;
  bool path_known = false;
  for (const RouteEntry& route : routes_) {
    bool prefix = route.method.empty();
    if (prefix ? !path.starts_with(route.path) : path != route.path) continue;
    path_known = true;
    if (!prefix && request.method != route.method) continue;
    if (Admit(connection, route.access)) {
      // A copy: the request's path lives as long as the request, which the handler may end.
      std::string rest(path.substr(route.path.size()));
      route.handler(connection, rest);
    }
    return;
  }
  // What exists is not told to a caller without a token.
  if (!Admit(connection, Access{false, true})) return;
  connection.ReplyError(path_known
                            ? Error{ErrorCode::kMethodNotAllowed, "not a method of this path", {}, {}}
                            : Error{ErrorCode::kNotFound, "there is no such call", {}, {}});
}

Result<int64_t> CallDeadline(const Connection& connection) {
  uint64_t span = kDefaultDeadlineMs;
  if (const std::string* text = connection.request().Header(kHeaderDeadline)) {
    auto number = ParseDecimal(*text);
    if (!number || *number == 0 || *number > kMaxDeadlineMs) {
      return Fail(ErrorCode::kInvalidArgument,
                  "Caisson-Deadline-Ms must be between 1 and 600000");
    }
    span = *number;
  }
  return connection.arrived_ms() + static_cast<int64_t>(span);
}

}  // namespace caisson::guest
