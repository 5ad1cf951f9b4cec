#include "http/server.h"

#include <gtest/gtest.h>

#include "http/client.h"
#include "net/loop.h"

namespace caisson::http {
namespace {

class ServerTest : public ::testing::Test {
 protected:
  Until Soon() { return Until(Deadline::After(clock_, Millis(30'000))); }

  // Runs `client` against a server with `handler`, then drains the server.
  template <typename T>
  T With(Handler handler, std::function<Task<T>(uint16_t port)> client, ServerLimits limits = {}) {
    auto work = [&]() -> Task<T> {
      Server server(loop_, net::ListenTcp(loop_, "127.0.0.1", 0).value(), limits, handler,
                    [](const Error& error) { return std::string(error.wire()); });
      server.Start();
      T result = co_await client(server.port());
      co_await server.Drain(Deadline::After(clock_, Millis(30'000)));
      EXPECT_EQ(server.connections(), 0u);
      co_return result;
    };
    return net::RunUntilDone(loop_, work());
  }

  // Sends raw bytes and reads to the end of the connection.
  Task<std::string> Raw(uint16_t port, std::string text, bool half_close = true) {
    auto stream = co_await net::DialTcp(loop_, "127.0.0.1", port, Soon());
    EXPECT_TRUE(stream.has_value());
    EXPECT_TRUE((co_await (*stream)->Write(text, Soon())).has_value());
    if (half_close) EXPECT_TRUE((co_await (*stream)->CloseWrite(Soon())).has_value());
    std::string all;
    std::string buffer(65536, '\0');
    for (;;) {
      auto got = co_await (*stream)->Read(buffer, Soon());
      if (!got || *got == 0) co_return all;
      all.append(buffer, 0, *got);
    }
  }

  static Handler Echo() {
    return [](ServerRequest& request, ServerResponse& response) -> Task<void> {
      auto body = co_await request.ReadWholeBody(1000);
      if (!body) {
        (void)co_await response.Send(InfoOf(body.error().code).http_status, {},
                                     std::string(body.error().wire()));
        co_return;
      }
      std::string text = std::string(request.method()) + " " + request.path() + " " + *body;
      for (const auto& [name, value] : request.query()) text += " " + name + "=" + value;
      (void)co_await response.Send(200, {}, std::move(text));
    };
  }

  SystemClock clock_;
  net::Loop loop_{clock_};
};

TEST_F(ServerTest, KeepsAConnectionForSeveralRequests) {
  std::string all = With<std::string>(Echo(), [&](uint16_t port) {
    return Raw(port,
               "GET /a%20b?x=1%262&y HTTP/1.1\r\nHost: h\r\n\r\n"
               "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
  });
  EXPECT_NE(all.find("\r\n\r\nGET /a b  x=1&2 y="), std::string::npos) << all;
  EXPECT_NE(all.find("\r\n\r\nPOST /b hi"), std::string::npos) << all;
}

TEST_F(ServerTest, AnswersMalformedRequestsAndCloses) {
  for (const char* text :
       {"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n", "\x16\x03\x01 hello\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n"}) {
    std::string all = With<std::string>(Echo(), [&](uint16_t port) {
      return Raw(port, std::string(text) + "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    });
    EXPECT_TRUE(all.starts_with("HTTP/1.1 400 ")) << text << "\n" << all;
    EXPECT_NE(all.find("malformed_request"), std::string::npos) << text << "\n" << all;
    EXPECT_EQ(all.find("smuggled"), std::string::npos) << text;
  }
}

TEST_F(ServerTest, LimitsHeaderAndBody) {
  ServerLimits limits;
  limits.header_bytes = 1000;
  std::string header = With<std::string>(
      Echo(),
      [&](uint16_t port) {
        return Raw(port, "GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(5000, 'x') + "\r\n\r\n");
      },
      limits);
  EXPECT_TRUE(header.starts_with("HTTP/1.1 431 ")) << header;
  std::string body = With<std::string>(Echo(), [&](uint16_t port) {
    return Raw(port, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n" +
                         std::string(1001, 'x'));
  });
  EXPECT_TRUE(body.starts_with("HTTP/1.1 413 ")) << body;
  std::string chunked = With<std::string>(Echo(), [&](uint16_t port) {
    return Raw(port, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                         std::string(1001, 'x') + "\r\n0\r\n\r\n");
  });
  EXPECT_TRUE(chunked.starts_with("HTTP/1.1 413 ")) << chunked;
}

TEST_F(ServerTest, CutsSlowHeadersAndIdleConnections) {
  ServerLimits limits;
  limits.header = Millis(50);
  limits.idle = Millis(50);
  std::string slow = With<std::string>(
      Echo(), [&](uint16_t port) { return Raw(port, "GET / HTTP/1.1\r\nHo", false); }, limits);
  EXPECT_TRUE(slow.starts_with("HTTP/1.1 408 ")) << slow;
  std::string idle =
      With<std::string>(Echo(), [&](uint16_t port) { return Raw(port, "", false); }, limits);
  EXPECT_EQ(idle, "");
}

TEST_F(ServerTest, StreamsAndMarksACutStream) {
  Handler handler = [](ServerRequest& request, ServerResponse& response) -> Task<void> {
    (void)co_await response.Start(200, {});
    (void)co_await response.Write("one");
    (void)co_await response.Write(std::string(100'000, 'x'));
    if (request.path() != "/cut") (void)co_await response.Finish();
  };
  auto whole = With<std::string>(
      handler, [&](uint16_t port) { return Raw(port, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); });
  EXPECT_TRUE(whole.ends_with("\r\n0\r\n\r\n"));
  auto cut = With<std::string>(
      handler, [&](uint16_t port) { return Raw(port, "GET /cut HTTP/1.1\r\nHost: h\r\n\r\n"); });
  EXPECT_FALSE(cut.ends_with("0\r\n\r\n"));
}

TEST_F(ServerTest, HeadHasNoBody) {
  auto all = With<std::string>(
      Echo(), [&](uint16_t port) { return Raw(port, "HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n"); });
  EXPECT_TRUE(all.ends_with("\r\n\r\n")) << all;
  EXPECT_NE(all.find("Content-Length: 8"), std::string::npos) << all;
}

TEST_F(ServerTest, RefusesConnectionsOverTheLimit) {
  ServerLimits limits;
  limits.connections = 1;
  auto all = With<std::string>(
      Echo(),
      [&](uint16_t port) -> Task<std::string> {
        auto first = co_await net::DialTcp(loop_, "127.0.0.1", port, Soon());
        // A full exchange, so that the first connection is surely counted.
        ClientConnection client(std::move(*first));
        EXPECT_TRUE((co_await client.Send({"GET", "/", {{"Host", "h"}}}, "", Soon())).has_value());
        EXPECT_TRUE((co_await client.ReadWholeBody(100, Soon())).has_value());
        co_return co_await Raw(port, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
      },
      limits);
  EXPECT_TRUE(all.starts_with("HTTP/1.1 503 ")) << all;
  EXPECT_NE(all.find("Retry-After: 1"), std::string::npos);
}

TEST_F(ServerTest, DrainLetsARequestFinish) {
  net::Notification entered(loop_);
  net::Notification release(loop_);
  auto work = [&]() -> Task<std::string> {
    Handler handler = [&](ServerRequest&, ServerResponse& response) -> Task<void> {
      entered.Set();
      (void)co_await release.Wait(Soon());
      (void)co_await response.Send(200, {}, "finished");
    };
    Server server(loop_, net::ListenTcp(loop_, "127.0.0.1", 0).value(), {}, handler,
                  [](const Error& error) { return std::string(error.wire()); });
    server.Start();
    net::TaskGroup group;
    std::string answer;
    group.Start([](Task<std::string> task, std::string& into) -> Task<void> {
      into = co_await std::move(task);
    }(Raw(server.port(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n", false), answer));
    (void)co_await entered.Wait(Soon());
    group.Start(server.Drain(Deadline::After(clock_, Millis(30'000))));
    release.Set();
    co_await group.Join();
    co_return answer;
  };
  std::string answer = net::RunUntilDone(loop_, work());
  EXPECT_TRUE(answer.ends_with("finished")) << answer;
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
}

TEST_F(ServerTest, AHandlerHearsThatItsClientLeft) {
  bool heard = false;
  Handler waits = [&](ServerRequest& request, ServerResponse& response) -> Task<void> {
    (void)co_await request.ReadWholeBody(100);
    if (request.path() == "/wait") {
      request.StopWhenClientLeaves();
      Until until(Deadline::After(clock_, Millis(30'000)), request.stop());
      auto slept = co_await loop_.Sleep(std::move(until));
      heard = !slept && slept.error().code == ErrorCode::kCancelled;
      co_return;
    }
    request.StopWhenClientLeaves();
    (void)co_await loop_.Sleep(Until(Deadline::After(clock_, Millis(50))));
    (void)co_await response.Send(200, {}, request.stop().stop_requested() ? "gone" : "here");
  };
  // What comes early is the next request, and no sign of leaving.
  std::string all = With<std::string>(waits, [&](uint16_t port) -> Task<std::string> {
    auto stream = (co_await net::DialTcp(loop_, "127.0.0.1", port, Soon())).value();
    std::string request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    EXPECT_TRUE((co_await stream->Write(request, Soon())).has_value());
    (void)co_await loop_.Sleep(Until(Deadline::After(clock_, Millis(20))));
    EXPECT_TRUE((co_await stream->Write(request, Soon())).has_value());
    std::string got;
    std::string buffer(65536, '\0');
    while (got.find("here", got.find("here") + 1) == std::string::npos) {
      auto more = co_await stream->Read(buffer, Soon());
      if (!more || *more == 0) break;
      got.append(buffer, 0, *more);
    }
    co_return got;
  });
  EXPECT_EQ(all.find("gone"), std::string::npos) << all;
  EXPECT_NE(all.rfind("here"), all.find("here")) << all;
  With<bool>(waits, [&](uint16_t port) -> Task<bool> {
    auto stream = (co_await net::DialTcp(loop_, "127.0.0.1", port, Soon())).value();
    EXPECT_TRUE(
        (co_await stream->Write("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n", Soon())).has_value());
    (void)co_await loop_.Sleep(Until(Deadline::After(clock_, Millis(50))));
    stream.reset();
    co_return true;
  });
  EXPECT_TRUE(heard);
}

TEST_F(ServerTest, SendsContinueOnlyWhenTheBodyIsWanted) {
  auto all = With<std::string>(Echo(), [&](uint16_t port) {
    return Raw(
        port, "POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi");
  });
  EXPECT_TRUE(all.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")) << all;
  auto refused = With<std::string>(Echo(), [&](uint16_t port) {
    return Raw(
        port, "POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2000\r\n\r\n",
        false);
  });
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 413")) << refused;
}

}  // namespace
}  // namespace caisson::http
