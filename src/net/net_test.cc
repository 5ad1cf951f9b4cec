#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "net/loop.h"
#include "net/resolver.h"
#include "net/task_group.h"

namespace caisson::net {
namespace {

class NetTest : public ::testing::Test {
 protected:
  Until Soon() { return Until(Deadline::After(clock_, Millis(30'000))); }
  Until Now() { return Until(Deadline::After(clock_, Millis(20))); }

  SystemClock clock_;
  Loop loop_{clock_};
};

struct Pair {
  StreamPtr a, b;
};
Pair MakePair(Loop& loop) {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {MakeStream(loop, UniqueFd(fds[0])).value(), MakeStream(loop, UniqueFd(fds[1])).value()};
}

Task<Result<std::string>> ReadToEnd(Stream& stream, Until until) {
  std::string all;
  std::string buffer(8192, '\0');
  for (;;) {
    CAISSON_CO_ASSIGN(size_t got, co_await stream.Read(buffer, until));
    if (got == 0) co_return all;
    all.append(buffer, 0, got);
  }
}

// RFC 6761: without asking anybody, so also in a root that has no /etc/hosts.
TEST_F(NetTest, LocalhostIsLoopback) {
  Resolver resolver;
  for (const char* name : {"localhost", "LocalHost.", "a.b.localhost"}) {
    auto found = RunUntilDone(loop_, resolver.Resolve(name, Until(Deadline::Never())));
    ASSERT_TRUE(found.has_value()) << name;
    EXPECT_EQ(*found, (std::vector<std::string>{"127.0.0.1", "::1"})) << name;
  }
  for (const char* name : {"notlocalhost.invalid", "localhost.invalid", "xlocalhost"}) {
    auto found = RunUntilDone(loop_, resolver.Resolve(name, Until(Deadline::Never())));
    if (found) EXPECT_NE(found->front(), "127.0.0.1") << name;
  }
}

TEST_F(NetTest, MovesMoreThanASocketHolds) {
  std::string data(10'000'000, 'x');
  auto work = [&]() -> Task<Result<std::string>> {
    Pair pair = MakePair(loop_);
    TaskGroup group;
    group.Start([](Stream& stream, const std::string& bytes, Until until) -> Task<void> {
      EXPECT_TRUE((co_await stream.Write(bytes, until)).has_value());
      EXPECT_TRUE((co_await stream.CloseWrite(until)).has_value());
    }(*pair.a, data, Soon()));
    auto got = co_await ReadToEnd(*pair.b, Soon());
    co_await group.Join();
    co_return got;
  };
  EXPECT_EQ(RunUntilDone(loop_, work()).value(), data);
}

TEST_F(NetTest, ReadEndsAtItsDeadline) {
  auto work = [&]() -> Task<Result<size_t>> {
    Pair pair = MakePair(loop_);
    std::string buffer(10, '\0');
    co_return co_await pair.a->Read(buffer, Now());
  };
  EXPECT_EQ(RunUntilDone(loop_, work()).error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(NetTest, ReadEndsByStopTokenFromAnotherThread) {
  std::stop_source source;
  auto work = [&]() -> Task<Result<size_t>> {
    Pair pair = MakePair(loop_);
    std::string buffer(10, '\0');
    co_return co_await pair.a->Read(buffer, Until(Soon().deadline, source.get_token()));
  };
  std::jthread stopper([&] { source.request_stop(); });
  EXPECT_EQ(RunUntilDone(loop_, work()).error().code, ErrorCode::kCancelled);
}

TEST_F(NetTest, AStreamWorksAfterATimedOutRead) {
  auto work = [&]() -> Task<Result<std::string>> {
    Pair pair = MakePair(loop_);
    std::string buffer(10, '\0');
    auto first = co_await pair.a->Read(buffer, Now());
    EXPECT_EQ(first.error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_TRUE((co_await pair.b->Write("hello", Soon())).has_value());
    CAISSON_CO_ASSIGN(size_t got, co_await pair.a->Read(buffer, Soon()));
    co_return buffer.substr(0, got);
  };
  EXPECT_EQ(RunUntilDone(loop_, work()).value(), "hello");
}

TEST_F(NetTest, WriteToAGonePeerIsAConnectionLost) {
  auto work = [&]() -> Task<Result<void>> {
    Pair pair = MakePair(loop_);
    pair.b.reset();
    co_return co_await pair.a->Write("x", Soon());
  };
  EXPECT_EQ(RunUntilDone(loop_, work()).error().code, ErrorCode::kConnectionLost);
}

TEST_F(NetTest, DroppingASuspendedTaskIsSafe) {
  auto work = [&]() -> Task<Result<void>> {
    Pair pair = MakePair(loop_);
    std::string buffer(10, '\0');
    {
      // Starts the read by hand, then destroys its coroutine while it waits.
      auto reading = [](Stream& stream, std::string& into, Until until) -> Task<void> {
        (void)co_await stream.Read(into, until);
        ADD_FAILURE() << "resumed after it was destroyed";
      };
      struct Starter {
        Task<void> task;
        bool await_ready() const { return false; }
        bool await_suspend(std::coroutine_handle<>) {
          auto awaiter = std::move(task).operator co_await();
          awaiter.await_suspend(std::noop_coroutine()).resume();
          return false;
        }
        void await_resume() const {}
      };
      Starter starter{reading(*pair.a, buffer, Soon())};
      co_await starter;
    }
    EXPECT_TRUE((co_await pair.b->Write("late", Soon())).has_value());
    co_return co_await loop_.Sleep(Now());
  };
  EXPECT_TRUE(RunUntilDone(loop_, work()).has_value());
}

TEST_F(NetTest, TcpListenAndDial) {
  auto listener = ListenTcp(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  uint16_t port = listener->Port().value();
  EXPECT_EQ(ListenTcp(loop_, "127.0.0.1", port).error().code, ErrorCode::kAddressInUse);
  auto work = [&]() -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(StreamPtr client, co_await DialTcp(loop_, "127.0.0.1", port, Soon()));
    CAISSON_CO_ASSIGN(StreamPtr server, co_await listener->Accept(Soon()));
    CAISSON_CO_TRY(co_await client->Write("hi", Soon()));
    CAISSON_CO_TRY(co_await client->CloseWrite(Soon()));
    co_return co_await ReadToEnd(*server, Soon());
  };
  EXPECT_EQ(RunUntilDone(loop_, work()).value(), "hi");
}

TEST_F(NetTest, DialNamesWhatRefused) {
  auto missing = RunUntilDone(loop_, DialUnix(loop_, "/nonexistent/socket", Soon()));
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("/nonexistent/socket"), std::string::npos);
  auto too_long = RunUntilDone(loop_, DialUnix(loop_, "/" + std::string(200, 'x'), Soon()));
  EXPECT_EQ(too_long.error().code, ErrorCode::kInvalidPath);
}

TEST_F(NetTest, UnixSocketIsPrivate) {
  std::string path = ::testing::TempDir() + "/s" + std::to_string(::getpid());
  UniqueFd fd = ListenUnixSocket(path).value();
  auto permissions = std::filesystem::status(path).permissions();
  EXPECT_EQ(permissions & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_TRUE(RunUntilDone(loop_, DialUnix(loop_, path, Soon())).has_value());
  std::filesystem::remove(path);
}

TEST_F(NetTest, NotificationBeforeAfterAndNever) {
  Notification before(loop_);
  before.Set();
  EXPECT_TRUE(RunUntilDone(loop_, before.Wait(Soon())).has_value());
  Notification after(loop_);
  loop_.Post([&] { after.Set(); });
  EXPECT_TRUE(RunUntilDone(loop_, after.Wait(Soon())).has_value());
  Notification never(loop_);
  EXPECT_EQ(RunUntilDone(loop_, never.Wait(Now())).error().code, ErrorCode::kDeadlineExceeded);
}

TEST_F(NetTest, SleepAndPostAcrossThreads) {
  Loop other(clock_);
  std::jthread thread([&] { other.Run(); });
  auto work = [&]() -> Task<Result<void>> {
    EXPECT_EQ(Loop::Current(), &loop_);
    co_await other.Enter();
    EXPECT_EQ(Loop::Current(), &other);
    co_await loop_.Enter();
    EXPECT_EQ(Loop::Current(), &loop_);
    co_return co_await loop_.Sleep(Now());
  };
  EXPECT_TRUE(RunUntilDone(loop_, work()).has_value());
  other.Stop();
}

}  // namespace
}  // namespace caisson::net
