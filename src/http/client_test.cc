#include "http/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "net/loop.h"
#include "net/task_group.h"

namespace caisson::http {
namespace {

// The client against a peer that plays a script: it reads up to a marker, then answers.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    client_.emplace(net::MakeStream(loop_, UniqueFd(fds[0])).value());
    peer_ = net::MakeStream(loop_, UniqueFd(fds[1])).value();
  }
  Until Soon() { return Until(Deadline::After(clock_, Millis(30'000))); }

  // Reads until `marker` was seen, then writes `answer`; closes when asked to.
  Task<void> Peer(std::string marker, std::string answer, bool close) {
    std::string buffer(65536, '\0');
    while (received_.find(marker) == std::string::npos) {
      auto got = co_await peer_->Read(buffer, Soon());
      if (!got || *got == 0) break;
      received_.append(buffer, 0, *got);
    }
    EXPECT_TRUE((co_await peer_->Write(answer, Soon())).has_value());
    if (close) peer_.reset();
  }

  SystemClock clock_;
  net::Loop loop_{clock_};
  std::optional<ClientConnection> client_;
  net::StreamPtr peer_;
  std::string received_;
};

TEST_F(ClientTest, SendsAndReads) {
  auto work = [&]() -> Task<Result<std::string>> {
    net::TaskGroup group;
    group.Start(Peer(
        "body", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        false));
    CAISSON_CO_ASSIGN(ResponseHead head,
                      co_await client_->Send({"POST", "/x", {{"Host", "h"}}}, "body", Soon()));
    EXPECT_EQ(head.status, 201);
    auto body = co_await client_->ReadWholeBody(100, Soon());
    co_await group.Join();
    co_return body;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).value(), "abc");
  EXPECT_EQ(received_, "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_TRUE(client_->reusable());
}

TEST_F(ClientTest, SkipsInterimAnswers) {
  auto work = [&]() -> Task<Result<ResponseHead>> {
    net::TaskGroup group;
    group.Start(Peer("\r\n\r\n",
                     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                     false));
    auto head = co_await client_->Send({"GET", "/", {}}, "", Soon());
    co_await group.Join();
    co_return head;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).value().status, 200);
}

TEST_F(ClientTest, StreamsABodyInChunks) {
  struct Source final : BodySource {
    int left = 3;
    std::string piece;
    Task<Result<std::string_view>> Next(Until) override {
      piece = left-- > 0 ? std::string(40'000, 'p') : "";
      co_return std::string_view(piece);
    }
  };
  auto work = [&]() -> Task<Result<ResponseHead>> {
    net::TaskGroup group;
    group.Start(Peer("\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false));
    Source source;
    auto head = co_await client_->SendStream({"PUT", "/", {}}, source, std::nullopt, Soon());
    co_await group.Join();
    co_return head;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).value().status, 200);
  EXPECT_EQ(std::ranges::count(received_, 'p'), 120'000);
}

TEST_F(ClientTest, AnAnswerCutShortIsALostConnection) {
  auto work = [&]() -> Task<Result<std::string>> {
    net::TaskGroup group;
    group.Start(Peer("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", true));
    CAISSON_CO_ASSIGN(ResponseHead head, co_await client_->Send({"GET", "/", {}}, "", Soon()));
    auto body = co_await client_->ReadWholeBody(100, Soon());
    co_await group.Join();
    co_return body;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).error().code, ErrorCode::kConnectionLost);
  EXPECT_FALSE(client_->reusable());
}

TEST_F(ClientTest, NoAnswerIsALostConnection) {
  auto work = [&]() -> Task<Result<ResponseHead>> {
    peer_.reset();
    co_return co_await client_->Send({"GET", "/", {}}, "", Soon());
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).error().code, ErrorCode::kConnectionLost);
}

TEST_F(ClientTest, BoundsTheAnswer) {
  auto work = [&]() -> Task<Result<std::string>> {
    net::TaskGroup group;
    group.Start(Peer("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", false));
    CAISSON_CO_ASSIGN(ResponseHead head, co_await client_->Send({"GET", "/", {}}, "", Soon()));
    auto body = co_await client_->ReadWholeBody(9, Soon());
    co_await group.Join();
    co_return body;
  };
  EXPECT_EQ(net::RunUntilDone(loop_, work()).error().code, ErrorCode::kBodyTooLarge);
}

TEST_F(ClientTest, RefusesHeadersWithLineBreaks) {
  auto send = [&](RequestHead head) {
    return net::RunUntilDone(loop_, client_->Send(std::move(head), "", Soon()));
  };
  EXPECT_EQ(send({"GET", "/", {{"X", "a\r\nY: b"}}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(send({"GET", "/a b", {}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(send({"GET", "/\r\nX", {}}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace caisson::http
