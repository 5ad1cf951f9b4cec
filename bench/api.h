// The HTTP API, over one kept connection.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "groups.h"
#include "http/client.h"
#include "json/json.h"

namespace caisson::bench {

// Belongs to the bench's loop. One call at a time.
class Api {
 public:
  Api(const Bench& bench, uint16_t port) : bench_(bench), port_(port) {}

  // The body of an answer below 400; an error otherwise. Connects where no connection is kept.
  Task<Result<std::string>> Call(std::string method, std::string path, std::string body,
                                 std::string accept = "application/json");
  Task<Result<json::object>> CallJson(std::string method, std::string path, std::string body);
  Task<Result<void>> Upload(std::string path, http::BodySource& body, uint64_t length);
  // Reads and drops it; its size.
  Task<Result<uint64_t>> Download(std::string path);

  Task<Result<std::string>> CreateSandbox(std::string body = "{}");
  Task<Result<void>> DestroySandbox(std::string id);
  // {"argv":[…]} or {"command":…}; an error unless its exit code is 0.
  Task<Result<void>> Exec(std::string id, std::string body);

 private:
  http::RequestHead Head(std::string method, std::string path, std::string accept) const;
  Task<Result<void>> Connect();
  Task<Result<void>> CheckStatus(http::ResponseHead head);

  const Bench& bench_;
  uint16_t port_;
  std::unique_ptr<http::ClientConnection> connection_;
};

inline constexpr std::string_view kExecTrue = R"({"argv":["/bin/true"]})";

}  // namespace caisson::bench
