#include "api.h"

#include <fmt/format.h>

namespace caisson::bench {
namespace {
constexpr size_t kMaxAnswer = 16 << 20;
}

http::RequestHead Api::Head(std::string method, std::string path, std::string accept) const {
  http::RequestHead head{std::move(method), std::move(path), {}};
  head.headers.Add("Host", fmt::format("127.0.0.1:{}", port_));
  head.headers.Add("Accept", std::move(accept));
  head.headers.Add("Content-Type", "application/json");
  return head;
}

Task<Result<void>> Api::Connect() {
  if (connection_ != nullptr && connection_->reusable()) co_return Result<void>();
  CAISSON_CO_ASSIGN(auto stream,
                    co_await net::DialTcp(bench_.loop, "127.0.0.1", port_, bench_.Soon()));
  connection_ = std::make_unique<http::ClientConnection>(std::move(stream));
  co_return Result<void>();
}

Task<Result<void>> Api::CheckStatus(http::ResponseHead head) {
  if (head.status < 400) co_return Result<void>();
  CAISSON_CO_ASSIGN(std::string text,
                    co_await connection_->ReadWholeBody(kMaxAnswer, bench_.Soon()));
  co_return Fail(ErrorCode::kProtocol,
                 fmt::format("the server answered {}: {}", head.status, text));
}

Task<Result<std::string>> Api::Call(std::string method, std::string path, std::string body,
                                    std::string accept) {
  CAISSON_CO_TRY(co_await Connect());
  CAISSON_CO_ASSIGN(auto head, co_await connection_->Send(
                                   Head(std::move(method), std::move(path), std::move(accept)),
                                   body, bench_.Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(std::move(head)));
  co_return co_await connection_->ReadWholeBody(kMaxAnswer, bench_.Soon());
}

Task<Result<json::object>> Api::CallJson(std::string method, std::string path, std::string body) {
  CAISSON_CO_ASSIGN(std::string text,
                    co_await Call(std::move(method), std::move(path), std::move(body)));
  co_return json::ParseObject(text);
}

Task<Result<void>> Api::Upload(std::string path, http::BodySource& body, uint64_t length) {
  CAISSON_CO_TRY(co_await Connect());
  CAISSON_CO_ASSIGN(
      auto head, co_await connection_->SendStream(Head("PUT", std::move(path), "application/json"),
                                                  body, length, bench_.Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(std::move(head)));
  CAISSON_CO_TRY(co_await connection_->ReadWholeBody(kMaxAnswer, bench_.Soon()));
  co_return Result<void>();
}

Task<Result<uint64_t>> Api::Download(std::string path) {
  CAISSON_CO_TRY(co_await Connect());
  CAISSON_CO_ASSIGN(auto head, co_await connection_->Send(Head("GET", std::move(path), "*/*"), "",
                                                          bench_.Soon()));
  CAISSON_CO_TRY(co_await CheckStatus(std::move(head)));
  uint64_t size = 0;
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await connection_->ReadBody(bench_.Soon()));
    if (piece.empty()) co_return size;
    size += piece.size();
  }
}

Task<Result<std::string>> Api::CreateSandbox(std::string body) {
  CAISSON_CO_ASSIGN(json::object made, co_await CallJson("POST", "/v1/sandboxes", std::move(body)));
  const json::value* id = made.if_contains("id");
  if (id == nullptr || !id->is_string()) {
    co_return Fail(ErrorCode::kProtocol, "a sandbox without an id");
  }
  co_return std::string(id->get_string());
}

Task<Result<void>> Api::DestroySandbox(std::string id) {
  CAISSON_CO_TRY(co_await Call("DELETE", "/v1/sandboxes/" + id, ""));
  co_return Result<void>();
}

Task<Result<void>> Api::Exec(std::string id, std::string body) {
  CAISSON_CO_ASSIGN(std::string text,
                    co_await Call("POST", "/v1/sandboxes/" + id + "/exec", std::move(body)));
  if (text.find(R"("code":0)") != text.npos) co_return Result<void>();
  co_return Fail(ErrorCode::kProtocol, "the command failed: " + text);
}

}  // namespace caisson::bench
