// The command line's side of the HTTP API.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"
#include "http/client.h"
#include "http/sse_decoder.h"
#include "json/json.h"
#include "net/loop.h"

namespace caisson::cli {

// A server at `url`, from --server or CAISSON_URL.
class ApiClient {
 public:
  ApiClient(net::Loop& loop, const Clock& clock, std::string url);

  // A call with JSON in and out. A problem becomes an Error with its code and detail.
  Task<Result<json::object>> Call(std::string method, std::string path, std::string body = "");
  // Sends a file's bytes; reads one whole, at most `limit` bytes.
  Task<Result<void>> Upload(std::string path, http::BodySource& body);
  Task<Result<std::string>> Download(std::string path, size_t limit);
  // Events until the stream ends or `on_event` gives false.
  using OnEvent = std::function<bool(const http::ServerSentEvent&)>;
  Task<Result<void>> Stream(std::string method, std::string path, std::string body,
                            OnEvent on_event);

  static std::string DefaultUrl();

 private:
  struct Answer {
    http::ResponseHead head;
    std::unique_ptr<http::ClientConnection> connection;
  };
  Task<Result<std::unique_ptr<http::ClientConnection>>> Connect();
  http::RequestHead Head(std::string method, std::string path, std::string_view accept) const;
  Task<Result<void>> CheckStatus(const http::ResponseHead& head,
                                 http::ClientConnection& connection);
  Until Soon() const;

  net::Loop& loop_;
  const Clock& clock_;
  std::string url_;
};

}  // namespace caisson::cli
