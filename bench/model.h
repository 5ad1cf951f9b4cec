// A model without latency: one tool call, then a final text.
#pragma once

#include <memory>

#include "groups.h"
#include "http/server.h"

namespace caisson::bench {

// Speaks OpenAI's protocol on a loopback port, on the bench's loop. Drain it before it goes.
class InstantModel {
 public:
  static Result<std::unique_ptr<InstantModel>> Start(Bench& bench);
  uint16_t port() const { return server_->port(); }
  Task<void> Drain() { return server_->Drain(bench_.Soon().deadline); }

  // Spent between having a request and having sent its answer, since the last call of this.
  double TakeSpentMs() { return std::exchange(spent_ms_, 0); }
  int TakeCalls() { return std::exchange(calls_, 0); }

 private:
  explicit InstantModel(Bench& bench) : bench_(bench) {}
  Task<Result<void>> Answer(http::ServerRequest& request, http::ServerResponse& response);

  Bench& bench_;
  std::unique_ptr<http::Server> server_;
  double spent_ms_ = 0;
  int calls_ = 0;
};

}  // namespace caisson::bench
