// Counters, gauges and durations of this process, in Prometheus' text format.
//
// Labels come from closed sets (codes, statuses, backends): never ids, scopes or texts of callers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace caisson::telemetry {

// Thread-safe.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // `route` is the pattern of the route, or "none".
  void HttpRequest(std::string_view method, std::string_view route, int status, Micros took);
  // `status` is the run's end.
  void RunEnded(std::string_view status);
  void RunsActive(size_t count);
  // `outcome` is "ready" or the code of the error.
  void SandboxCreated(std::string_view backend, std::string_view outcome, Micros took);
  // One step of making it; `step` is the backend's name for it.
  void SandboxStep(std::string_view backend, std::string_view step, Micros took);
  void SandboxEnded(std::string_view backend, std::string_view status);

  // The whole registry as text/plain; version=0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace caisson::telemetry
