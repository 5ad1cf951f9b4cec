#include "cli/api_client.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "http/connector.h"
#include "json/reader.h"

namespace caisson::cli {
namespace {

constexpr Millis kPatience{60'000};
constexpr size_t kMaxAnswer = 64 << 20;

}  // namespace

std::string ApiClient::DefaultUrl() {
  const char* url = std::getenv("CAISSON_URL");
  return url == nullptr ? "http://127.0.0.1:8080" : url;
}

ApiClient::ApiClient(net::Loop& loop, const Clock& clock, std::string url)
    : loop_(loop), clock_(clock), url_(std::move(url)) {}

Until ApiClient::Soon() const { return Until(Deadline::After(clock_, kPatience)); }

Task<Result<std::unique_ptr<http::ClientConnection>>> ApiClient::Connect() {
  CAISSON_CO_ASSIGN(http::Url url, http::ParseUrl(url_));
  if (url.https) {
    co_return Fail(ErrorCode::kNotSupported, "the command line reaches servers by http only");
  }
  std::string address = url.host == "localhost" ? "127.0.0.1" : url.host;
  auto stream = co_await net::DialTcp(loop_, address, url.port, Soon());
  if (!stream) {
    co_return Fail(
        ErrorCode::kUnavailable,
        fmt::format("no server answers at {}; start one with `caisson serve`, or name another with "
                    "--server",
                    url_),
        stream.error().message);
  }
  co_return std::make_unique<http::ClientConnection>(std::move(*stream));
}

http::RequestHead ApiClient::Head(std::string method, std::string path,
                                  std::string_view accept) const {
  http::RequestHead head{std::move(method), std::move(path), {}};
  head.headers.Add("Host", http::ParseUrl(url_).value_or(http::Url()).Authority());
  head.headers.Add("Accept", std::string(accept));
  head.headers.Add("Content-Type", "application/json");
  return head;
}

Task<Result<void>> ApiClient::CheckStatus(const http::ResponseHead& head,
                                          http::ClientConnection& connection) {
  if (head.status < 400) co_return Result<void>();
  CAISSON_CO_ASSIGN(std::string text, co_await connection.ReadWholeBody(kMaxAnswer, Soon()));
  auto problem = json::ParseObject(text);
  if (!problem) {
    co_return Fail(ErrorCode::kProtocol,
                   fmt::format("the server answered {} without a problem", head.status));
  }
  json::ObjectReader reader(*problem);
  auto code = ErrorCodeFromWire(reader.String("code").value_or(""));
  co_return Fail(code.value_or(ErrorCode::kProtocol), reader.String("detail").value_or(text));
}

Task<Result<json::object>> ApiClient::Call(std::string method, std::string path, std::string body) {
  CAISSON_CO_ASSIGN(auto connection, co_await Connect());
  CAISSON_CO_ASSIGN(
      auto head, co_await connection->Send(
                     Head(std::move(method), std::move(path), "application/json"), body, Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(head, *connection));
  CAISSON_CO_ASSIGN(std::string text, co_await connection->ReadWholeBody(kMaxAnswer, Soon()));
  if (text.empty()) co_return json::object();
  co_return json::ParseObject(text);
}

Task<Result<void>> ApiClient::Upload(std::string path, http::BodySource& body) {
  CAISSON_CO_ASSIGN(auto connection, co_await Connect());
  Until until(Deadline::After(clock_, Millis(600'000)));
  CAISSON_CO_ASSIGN(
      auto head, co_await connection->SendStream(Head("PUT", std::move(path), "application/json"),
                                                 body, std::nullopt, until));
  co_return co_await CheckStatus(head, *connection);
}

Task<Result<std::string>> ApiClient::Download(std::string path, size_t limit) {
  CAISSON_CO_ASSIGN(auto connection, co_await Connect());
  CAISSON_CO_ASSIGN(auto head,
                    co_await connection->Send(Head("GET", std::move(path), "*/*"), "", Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(head, *connection));
  co_return co_await connection->ReadWholeBody(limit, Soon());
}

Task<Result<void>> ApiClient::Stream(std::string method, std::string path, std::string body,
                                     OnEvent on_event) {
  CAISSON_CO_ASSIGN(auto connection, co_await Connect());
  CAISSON_CO_ASSIGN(
      auto head, co_await connection->Send(
                     Head(std::move(method), std::move(path), "text/event-stream"), body, Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(head, *connection));
  http::SseDecoder decoder;
  for (;;) {
    CAISSON_CO_ASSIGN(auto event, decoder.Next());
    if (event.has_value()) {
      if (!on_event(*event)) co_return Result<void>();
      continue;
    }
    // The server sends a comment every 15 seconds.
    CAISSON_CO_ASSIGN(std::string piece, co_await connection->ReadBody(Soon()));
    if (piece.empty()) co_return Result<void>();
    decoder.Feed(piece);
  }
}

}  // namespace caisson::cli
