#include "http/pool.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string_view>
#include <vector>

#include "base/syscall.h"
#include "net/loop.h"

namespace caisson::http {
namespace {

// Each dial is one more socket pair, whose other end the test has.
class PairDialer final : public net::Dialer {
 public:
  PairDialer(net::Loop& loop, std::vector<UniqueFd>& peers) : loop_(loop), peers_(peers) {}
  Task<Result<net::StreamPtr>> Dial(Until) override {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    peers_.emplace_back(fds[1]);
    co_return net::MakeStream(loop_, UniqueFd(fds[0]));
  }

 private:
  net::Loop& loop_;
  std::vector<UniqueFd>& peers_;
};

class PoolTest : public ::testing::Test {
 protected:
  static constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

  // One request on a borrowed connection; the answer waits already when it is sent.
  Task<Result<bool>> Request(bool read_body) {
    Until soon(Deadline::After(clock_, Millis(30'000)));
    CAISSON_CO_ASSIGN(PooledConnection connection, co_await pool_->Borrow(soon));
    // Without its last byte the answer cannot be read to its end.
    CAISSON_CO_TRY(WriteAll(peers_.back().get(), kAnswer.substr(0, kAnswer.size() - !read_body)));
    CAISSON_CO_TRY(co_await connection->Send({"GET", "/", {}}, "", soon));
    if (read_body) CAISSON_CO_TRY(co_await connection->ReadWholeBody(100, soon));
    co_return connection.reused();
  }
  bool Reused(bool read_body = true) {
    return net::RunUntilDone(loop_, Request(read_body)).value();
  }

  SystemClock clock_;
  net::Loop loop_{clock_};
  std::vector<UniqueFd> peers_;
  ManualClock age_{WallTime{}};
  std::shared_ptr<ConnectionPool> pool_ =
      ConnectionPool::Make(std::make_unique<PairDialer>(loop_, peers_), age_);
};

TEST_F(PoolTest, AnAnsweredConnectionServesAgain) {
  EXPECT_FALSE(pool_->HasLive());
  EXPECT_FALSE(Reused());
  EXPECT_TRUE(pool_->HasLive());
  EXPECT_TRUE(Reused());
  EXPECT_EQ(peers_.size(), 1u);
}

TEST_F(PoolTest, OneThatThePeerClosedDoesNot) {
  EXPECT_FALSE(Reused());
  peers_.back().reset();
  EXPECT_FALSE(pool_->HasLive());
  EXPECT_FALSE(Reused());
  EXPECT_EQ(peers_.size(), 2u);
}

TEST_F(PoolTest, OneThatHasWaitedLongDoesNot) {
  EXPECT_FALSE(Reused());
  age_.Advance(ConnectionPool::kMaxAge - Millis(1));
  EXPECT_TRUE(Reused());  // and its age begins anew
  age_.Advance(ConnectionPool::kMaxAge - Millis(1));
  EXPECT_TRUE(Reused());
  age_.Advance(ConnectionPool::kMaxAge);
  EXPECT_FALSE(pool_->HasLive());
  EXPECT_FALSE(Reused());
  EXPECT_EQ(peers_.size(), 2u);
}

TEST_F(PoolTest, OneWithBytesNobodyAskedForDoesNot) {
  EXPECT_FALSE(Reused());
  ASSERT_TRUE(WriteAll(peers_.back().get(), kAnswer).has_value());
  EXPECT_FALSE(Reused());
}

TEST_F(PoolTest, OneWhoseAnswerWasNotReadToItsEndDoesNot) {
  EXPECT_FALSE(Reused(false));
  EXPECT_FALSE(Reused());
}

TEST_F(PoolTest, AConnectionMayOutliveItsPool) {
  Until soon(Deadline::After(clock_, Millis(30'000)));
  auto connection = net::RunUntilDone(loop_, pool_->Borrow(soon));
  pool_.reset();
  EXPECT_TRUE(connection.value()->reusable());
}

}  // namespace
}  // namespace caisson::http
