// The worker: claims runs and carries them out, each under its lease and fence. A run belongs to
// the worker that claimed it, never to the request that asked for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/definition.h"
#include "agent/engine.h"
#include "base/clock.h"
#include "base/random.h"
#include "http/connector.h"
#include "model/provider.h"
#include "net/loop.h"
#include "net/task_group.h"
#include "sandbox/manager.h"
#include "store/store.h"
#include "telemetry/metrics.h"

namespace caisson::runtime {

struct WorkerSettings {
  Millis lease{15'000};
  Millis renew_every{5'000};
  Millis poll_every{500};  // for runs and cancels that nobody told us of
  size_t max_runs = 32;    // at the same time
};

// The value of an environment variable of the server; nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Belongs to one loop; all references outlive it.
class Worker {
 public:
  Worker(net::Loop& loop, store::Store& store, sandbox::Manager& sandboxes,
         http::Connector& connector, Environment environment, telemetry::Metrics& metrics,
         const Clock& clock, Random& random, WorkerSettings settings = {});

  void Start();
  // A run was submitted: look now instead of at the next poll.
  void Wake();
  // Stops claiming; runs may finish until the deadline and are interrupted then.
  Task<void> Stop(Deadline deadline);
  size_t running() const { return running_; }

 private:
  // One claimed run and what belongs to it.
  struct Job;
  Task<void> ClaimLoop();
  Task<void> Carry(store::Claim claim);
  Task<void> KeepLease(std::shared_ptr<Job> job);
  Task<void> WatchCancel(std::shared_ptr<Job> job);
  Task<Result<store::RunChange>> Work(Job& job);
  Task<Result<store::RunChange>> SettleInterrupted(Job& job);
  Task<Result<agent::Conversation>> ReadConversation(const Job& job);

  net::Loop& loop_;
  store::Store& store_;
  sandbox::Manager& sandboxes_;
  http::Connector& connector_;
  Environment environment_;
  telemetry::Metrics& metrics_;
  const Clock& clock_;
  Random& random_;
  WorkerSettings settings_;
  ReplicaId self_;
  net::TaskGroup tasks_;
  std::unique_ptr<net::Notification> wake_;
  std::stop_source interrupt_;  // of every run, at the end of a drain
  size_t running_ = 0;
};

}  // namespace caisson::runtime
