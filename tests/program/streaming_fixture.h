// A server, and connections to its streams that may be left at any time.
#pragma once

#include <memory>
#include <string>

#include "http/client.h"
#include "http/connector.h"
#include "server_fixture.h"

namespace caisson::program_test {

class StreamingTest : public ServerTest {
 public:
  Until Soon() { return Until(Deadline::After(clock_, Millis(60'000))); }

  // Sends a request for a stream and gives its connection.
  struct Opened {
    http::ResponseHead head;
    std::unique_ptr<http::ClientConnection> client;
  };
  Task<Result<Opened>> Open(std::string method, std::string path, std::string body = "") {
    CAISSON_CO_ASSIGN(http::Url url, http::ParseUrl(server_->url()));
    CAISSON_CO_ASSIGN(auto stream, co_await net::DialTcp(loop_, url.host, url.port, Soon()));
    Opened opened;
    opened.client = std::make_unique<http::ClientConnection>(std::move(stream));
    http::RequestHead head{
        method, path, {{"Host", url.Authority()}, {"Accept", "text/event-stream"}}};
    CAISSON_CO_ASSIGN(opened.head, co_await opened.client->Send(std::move(head), body, Soon()));
    co_return opened;
  }
  // Reads until `part` came: everything up to now.
  Task<Result<std::string>> ReadUntil(http::ClientConnection& client, std::string part,
                                      Until until) {
    std::string text;
    while (text.find(part) == text.npos) {
      CAISSON_CO_ASSIGN(std::string piece, co_await client.ReadBody(until));
      if (piece.empty()) co_return Fail(ErrorCode::kConnectionLost, "the stream ended: " + text);
      text += piece;
    }
    co_return text;
  }
  template <typename T>
  T Run(Task<T> task) {
    return net::RunUntilDone(loop_, std::move(task));
  }

  SystemClock clock_;
  net::Loop loop_{clock_};
};

}  // namespace caisson::program_test
