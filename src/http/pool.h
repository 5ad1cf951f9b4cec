// Connections to one peer, kept open between requests.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "http/client.h"
#include "net/stream.h"

namespace caisson::http {

class ConnectionPool;

// A borrowed connection; goes back when its last answer was read to the end, is closed otherwise.
class PooledConnection {
 public:
  PooledConnection(std::weak_ptr<ConnectionPool> pool, std::unique_ptr<ClientConnection> connection,
                   bool reused);
  PooledConnection(PooledConnection&&) noexcept;
  PooledConnection& operator=(PooledConnection other) noexcept;
  ~PooledConnection();

  ClientConnection& operator*() const { return *connection_; }
  ClientConnection* operator->() const { return connection_.get(); }
  // It served a request before: the peer may be closing it at this moment.
  bool reused() const { return reused_; }

 private:
  std::weak_ptr<ConnectionPool> pool_;
  std::unique_ptr<ClientConnection> connection_;
  bool reused_;
};

// Belongs to one loop. One that has waited for kMaxAge is not used again: what stands between may
// have forgotten it without a word, and a request on it would wait for its whole deadline.
class ConnectionPool : public std::enable_shared_from_this<ConnectionPool> {
 public:
  static constexpr Millis kMaxAge{30'000};

  static std::shared_ptr<ConnectionPool> Make(std::unique_ptr<net::Dialer> dialer,
                                              const Clock& clock);

  // One that waits here and that the peer still keeps open, or a new one.
  Task<Result<PooledConnection>> Borrow(Until until);
  Task<Result<PooledConnection>> Dial(Until until);
  // True when the peer keeps one of those that wait here open.
  bool HasLive();

 private:
  friend class PooledConnection;
  static constexpr size_t kMaxIdle = 8;

  struct Idle {
    std::unique_ptr<ClientConnection> connection;
    Deadline until;
  };

  ConnectionPool(std::unique_ptr<net::Dialer> dialer, const Clock& clock)
      : dialer_(std::move(dialer)), clock_(clock) {}
  void DropDead();

  std::unique_ptr<net::Dialer> dialer_;
  const Clock& clock_;
  std::vector<Idle> idle_;
};

}  // namespace caisson::http
