// A model provider that a test writes: it serves a loopback port on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "http/server.h"
#include "json/json.h"
#include "net/loop.h"

namespace caisson::program_test {

// Closed until the test opens it, from any thread.
class Gate {
 public:
  void Open() { open_ = true; }
  bool is_open() const { return open_; }
  // Until it is open; kCancelled when the model goes before.
  Task<Result<void>> Wait(std::stop_token stop) const;

 private:
  std::atomic<bool> open_ = false;
};

class FakeModel {
 public:
  // Answers the call with this number, from 0, on the model's thread.
  using Script = std::function<Task<Result<void>>(int call, http::ServerRequest& request,
                                                  http::ServerResponse& response)>;
  explicit FakeModel(Script script);
  ~FakeModel();
  FakeModel(const FakeModel&) = delete;
  FakeModel& operator=(const FakeModel&) = delete;

  // What a provider's definition says; of either protocol.
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }
  int calls() const { return calls_; }

 private:
  Task<Result<void>> Serve();

  SystemClock clock_;
  net::Loop loop_{clock_};
  Script script_;
  net::Notification stop_{loop_};
  std::atomic<int> calls_ = 0;
  std::atomic<uint16_t> port_ = 0;
  std::thread thread_;
};

// OpenAI's wire: one piece of an answer, and its end.
std::string Piece(const json::object& delta);
inline constexpr std::string_view kAnswerEnd =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: [DONE]\n\n";
// A whole answer of this text, word by word.
Task<Result<void>> Say(http::ServerResponse& response, std::string text);

}  // namespace caisson::program_test
