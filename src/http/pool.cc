#include "http/pool.h"

#include <utility>

namespace caisson::http {

PooledConnection::PooledConnection(std::weak_ptr<ConnectionPool> pool,
                                   std::unique_ptr<ClientConnection> connection, bool reused)
    : pool_(std::move(pool)), connection_(std::move(connection)), reused_(reused) {}
PooledConnection::PooledConnection(PooledConnection&&) noexcept = default;
PooledConnection& PooledConnection::operator=(PooledConnection other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(connection_, other.connection_);
  std::swap(reused_, other.reused_);
  return *this;
}
PooledConnection::~PooledConnection() {
  auto pool = pool_.lock();
  if (!pool || !connection_ || !connection_->reusable()) return;
  if (pool->idle_.size() < ConnectionPool::kMaxIdle) {
    pool->idle_.push_back(
        {std::move(connection_), Deadline::After(pool->clock_, ConnectionPool::kMaxAge)});
  }
}

std::shared_ptr<ConnectionPool> ConnectionPool::Make(std::unique_ptr<net::Dialer> dialer,
                                                     const Clock& clock) {
  return std::shared_ptr<ConnectionPool>(new ConnectionPool(std::move(dialer), clock));
}

void ConnectionPool::DropDead() {
  std::erase_if(idle_, [this](const Idle& idle) {
    return idle.until.Passed(clock_) || !idle.connection->reusable();
  });
}

bool ConnectionPool::HasLive() {
  DropDead();
  return !idle_.empty();
}

Task<Result<PooledConnection>> ConnectionPool::Borrow(Until until) {
  DropDead();
  if (idle_.empty()) co_return co_await Dial(std::move(until));
  auto connection = std::move(idle_.back().connection);
  idle_.pop_back();
  co_return PooledConnection(weak_from_this(), std::move(connection), true);
}

Task<Result<PooledConnection>> ConnectionPool::Dial(Until until) {
  CAISSON_CO_ASSIGN(net::StreamPtr stream, co_await dialer_->Dial(std::move(until)));
  co_return PooledConnection(weak_from_this(),
                             std::make_unique<ClientConnection>(std::move(stream)), false);
}

}  // namespace caisson::http
