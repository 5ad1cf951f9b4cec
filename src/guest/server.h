// The guest's face: accepts streams, checks authority, and sends each request to whom it concerns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guest/connection.h"
#include "guest/loop.h"

namespace caisson::guest {

class Server : public ConnectionHost {
 public:
  // Called when a request's header is in; `rest` is what follows a prefix route's path.
  using Handler = std::function<void(Connection& connection, std::string_view rest)>;

  Server(Loop& loop, std::string token) : loop_(loop), token_(std::move(token)) {}
  ~Server() override { token_.assign(token_.size(), '\0'); }

  // `open`: needs no token. `while_unclean`: answers though the sandbox is unclean.
  struct Access {
    bool open = false;
    bool while_unclean = false;
  };
  void Route(std::string_view method, std::string_view path, Handler handler, Access access);
  void Route(std::string_view method, std::string_view path, Handler handler) {
    Route(method, path, std::move(handler), Access{});
  }
  // Everything below `path`, which ends with '/'; the handler looks at the method.
  void RoutePrefix(std::string_view path, Handler handler);

  // Accepts from `listener`, which must outlive the server.
  Result<void> Listen(int listener);
  // Null when that stream is gone.
  Connection* Find(uint64_t connection_id);

  // From now on only hello and health answer. The first reason is kept.
  void MarkUnclean(std::string reason);
  bool unclean() const { return !unclean_reason_.empty(); }
  const std::string& unclean_reason() const { return unclean_reason_; }

  void OnRequest(Connection& connection) override;
  void OnClosed(Connection& connection) override;

 private:
  struct RouteEntry {
    std::string_view method;  // empty: any, and `path` is a prefix
    std::string_view path;
    Handler handler;
    Access access;
  };

  void Accept(int listener);
  // Whether the request may act; has replied if not.
  bool Admit(Connection& connection, const Access& access);

  Loop& loop_;
  std::string token_;
  std::vector<RouteEntry> routes_;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_connection_ = 1;
  uint64_t fence_ = 0;  // the highest seen
  std::string unclean_reason_;
};

// When the call must be over, on the monotonic clock; kInvalidArgument for a bad header.
Result<int64_t> CallDeadline(const Connection& connection);

}  // namespace caisson::guest
