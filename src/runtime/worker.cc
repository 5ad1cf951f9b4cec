#include "runtime/worker.h"

#include <fmt/format.h>

#include <utility>

#include "agent/payloads.h"
#include "agent/tools/sandbox_tools.h"
#include "base/failpoint.h"
#include "guest/text.h"
#include "json/json.h"
#include "runtime/plan.h"

namespace caisson::runtime {
namespace {

using events::EventType;
using events::NewEvent;
using store::RunStatus;

// The engine's events, into the log under the run's fence.
class LogSink final : public agent::EventSink {
 public:
  LogSink(store::Store& store, store::Fence fence) : store_(store), fence_(std::move(fence)) {}
  Task<Result<void>> Emit(std::vector<NewEvent> events) override {
    CAISSON_CO_TRY(co_await store_.AppendEvents(fence_, std::move(events)));
    CAISSON_FAILPOINT("run.event_appended");
    co_return Result<void>();
  }

 private:
  store::Store& store_;
  store::Fence fence_;
};

NewEvent ErrorEvent(const Error& error) {
  // A message may quote what a peer sent; the log takes UTF-8 only.
  json::object payload{{"code", error.wire()}, {"message", guest::ReplaceBadUtf8(error.message)}};
  return {EventType::kError, json::Serialize(payload)};
}

store::RunChange Failed(RunStatus to, const Error& error) {
  return {to, std::string(error.wire()), error.message, {ErrorEvent(error)}};
}

}  // namespace

struct Worker::Job {
  Job(net::Loop& loop, store::Claim claimed) : claim(std::move(claimed)), ended(loop) {}
  store::Claim claim;
  std::stop_source stop;   // ends the work under way
  bool cancelled = false;  // by a caller
  bool fenced = false;     // by another owner
  net::Notification ended;
  std::stop_source watchers;  // of the tasks beside the work
  net::TaskGroup side;
};

Worker::Worker(net::Loop& loop, store::Store& store, sandbox::Manager& sandboxes,
               http::Connector& connector, Environment environment, telemetry::Metrics& metrics,
               const Clock& clock, Random& random, WorkerSettings settings)
    : loop_(loop),
      store_(store),
      sandboxes_(sandboxes),
      connector_(connector),
      environment_(std::move(environment)),
      metrics_(metrics),
      clock_(clock),
      random_(random),
      settings_(settings),
      self_(ReplicaId::Make(clock, random)),
      wake_(std::make_unique<net::Notification>(loop)) {}

void Worker::Start() { tasks_.Start(ClaimLoop()); }
void Worker::Wake() { wake_->Set(); }

Task<void> Worker::Stop(Deadline deadline) {
  tasks_.RequestStop();
  while (running_ > 0 && !deadline.Passed(clock_)) {
    Deadline step = Deadline::After(clock_, Millis(10)).Earlier(deadline);
    (void)co_await loop_.Sleep(Until(step));
  }
  interrupt_.request_stop();
  co_await tasks_.Join();
}

Task<void> Worker::ClaimLoop() {
  while (!tasks_.stop().stop_requested()) {
    while (running_ < settings_.max_runs && !tasks_.stop().stop_requested()) {
      auto claim = co_await store_.ClaimRun(self_, settings_.lease);
      // A store that is busy is asked again at the next poll.
      if (!claim || !claim->has_value()) break;
      metrics_.RunsActive(++running_);
      tasks_.Start(Carry(std::move(**claim)));
    }
    (void)co_await wake_->Wait(Until(Deadline::After(clock_, settings_.poll_every), tasks_.stop()));
    wake_ = std::make_unique<net::Notification>(loop_);
  }
}

Task<void> Worker::Carry(store::Claim claim) {
  auto job = std::make_shared<Job>(loop_, std::move(claim));
  std::stop_callback interrupted(interrupt_.get_token(), [&] { job->stop.request_stop(); });
  job->side.Start(KeepLease(job));
  job->side.Start(WatchCancel(job));
  bool resumed = job->claim.resumed;
  auto change = resumed ? co_await SettleInterrupted(*job) : co_await Work(*job);
  CAISSON_FAILPOINT("run.before_end");
  // A worker that was fenced writes nothing more: the run is another's.
  if (!change && change.error().code != ErrorCode::kFenced && !job->fenced) {
    Error error = std::move(change.error());
    if (job->cancelled) {
      change =
          Failed(RunStatus::kCancelled, {ErrorCode::kCancelled, "the run was cancelled", {}, {}});
    } else if (error.code == ErrorCode::kCancelled) {
      change = Failed(
          RunStatus::kInterrupted,
          {ErrorCode::kInterrupted, "the server stopped while the run was under way", {}, {}});
    } else {
      change = Failed(RunStatus::kFailed, error);
    }
  }
  if (change) {
    auto ended = co_await store_.ChangeRun(job->claim.fence, *change);
    if (!ended && ended.error().code == ErrorCode::kIllegalTransition) {
      // A cancel that came in the last moment has won: the run is cancelling and ends as that.
      change =
          Failed(RunStatus::kCancelled, {ErrorCode::kCancelled, "the run was cancelled", {}, {}});
      ended = co_await store_.ChangeRun(job->claim.fence, *change);
    } else if (!ended && ended.error().code == ErrorCode::kInternal) {
      // An event that the log refuses must not leave the run without an end.
      change =
          Failed(RunStatus::kFailed,
                 {ErrorCode::kInternal, "the run's last events could not be recorded", {}, {}});
      ended = co_await store_.ChangeRun(job->claim.fence, *change);
    }
    // Whatever else fails (the store is gone, the run is another's): the lease runs out, and the
    // next owner settles it.
    if (!ended) change = Fail(ended.error());
  }
  job->watchers.request_stop();
  co_await job->side.Join();
  if (change) metrics_.RunEnded(NameOf(change->to));
  metrics_.RunsActive(--running_);
}

Task<void> Worker::KeepLease(std::shared_ptr<Job> job) {
  for (;;) {
    Until until(Deadline::After(clock_, settings_.renew_every), job->watchers.get_token());
    if (!co_await loop_.Sleep(until)) co_return;
    auto renewed = co_await store_.RenewLease(job->claim.fence, settings_.lease);
    if (!renewed && renewed.error().code == ErrorCode::kFenced) {
      job->fenced = true;
      job->stop.request_stop();
      co_return;
    }
  }
}

Task<void> Worker::WatchCancel(std::shared_ptr<Job> job) {
  for (;;) {
    auto run = co_await store_.GetRun(job->claim.fence.scope(), job->claim.run.id);
    if (run && run->status == RunStatus::kCancelling) {
      job->cancelled = true;
      job->stop.request_stop();
      co_return;
    }
    Until until(Deadline::After(clock_, settings_.poll_every), job->watchers.get_token());
    if (!co_await loop_.Sleep(until)) co_return;
  }
}

Task<Result<agent::Conversation>> Worker::ReadConversation(const Job& job) {
  agent::Conversation conversation;
  store::EventQuery query{job.claim.run.session, 0, 1000, events::Visibility::kInternal, {}};
  for (;;) {
    CAISSON_CO_ASSIGN(auto page, co_await store_.ReadEvents(job.claim.fence.scope(), query));
    for (const events::Event& event : page.events) CAISSON_CO_TRY(conversation.Apply(event));
    if (page.at_end) co_return conversation;
    query.after = page.through;
  }
}

// The worker before has died. What it had begun is told as interrupted, and so is the run: it is
// not known how far its last step came.
Task<Result<store::RunChange>> Worker::SettleInterrupted(Job& job) {
  CAISSON_CO_ASSIGN(agent::Conversation conversation, co_await ReadConversation(job));
  std::vector<NewEvent> told;
  for (const model::ToolCall& call : conversation.OpenCalls()) {
    json::object payload{{"tool_call_id", call.id},
                         {"name", call.name},
                         {"output", agent::kInterruptedText},
                         {"code", InfoOf(ErrorCode::kInterrupted).wire}};
    told.push_back({EventType::kToolInterrupted, json::Serialize(payload)});
  }
  Error error{ErrorCode::kInterrupted,
              "the server ended while the run was under way; send another message to go on",
              {},
              {}};
  bool cancelling = job.claim.run.status == RunStatus::kCancelling;
  store::RunChange change =
      Failed(cancelling ? RunStatus::kCancelled : RunStatus::kInterrupted, error);
  told.insert(told.end(), change.events.begin(), change.events.end());
  change.events = std::move(told);
  co_return change;
}

Task<Result<store::RunChange>> Worker::Work(Job& job) {
  const store::Fence& fence = job.claim.fence;
  CAISSON_CO_ASSIGN(store::SessionRow session,
                    co_await store_.GetSession(fence.scope(), fence.session()));
  CAISSON_CO_ASSIGN(RunPlan plan, co_await ResolveRunPlan(store_, fence.scope(), session.agent));
  CAISSON_CO_TRY(co_await store_.PinManifest(fence, plan.manifest, plan.digest));
  std::string key;
  if (!plan.provider.api_key_env.empty()) {
    auto value = environment_(plan.provider.api_key_env);
    if (!value.has_value() || value->empty()) {
      co_return Fail(ErrorCode::kMissingKey,
                     fmt::format("the server's environment variable {} is not set; set it and "
                                 "start the server again",
                                 plan.provider.api_key_env));
    }
    key = std::move(*value);
  }
  CAISSON_CO_ASSIGN(agent::Conversation conversation, co_await ReadConversation(job));
  auto provider = model::MakeProvider(plan.provider, std::move(key), connector_, clock_);
  agent::SandboxSource source =
      [&](Until until) -> Task<Result<std::shared_ptr<sandbox::GuestClient>>> {
    CAISSON_CO_ASSIGN(
        store::SandboxRow row,
        co_await sandboxes_.ForSession(fence.scope(), fence.session(), plan.sandbox, until));
    co_return co_await sandboxes_.Open(fence.scope(), row.id, until);
  };
  agent::SandboxTools tools(source, clock_);
  LogSink sink(store_, fence);
  agent::Engine engine(plan.engine, std::move(conversation), *provider, tools, sink, clock_,
                       random_);
  Until until(Deadline::After(clock_, plan.agent.timeout), job.stop.get_token());
  agent::EngineOutcome outcome = co_await engine.Run(until);

  store::RunChange change;
  change.events = std::move(outcome.last_word);
  if (outcome.usage.model_calls > 0) {
    change.events.push_back(
        agent::UsageEvent(outcome.usage, plan.engine.provider_name, plan.engine.model));
  }
  if (!outcome.error.has_value()) {
    json::object done{{"message_id", outcome.message_id}, {"content", outcome.text}};
    change.events.push_back({EventType::kDone, json::Serialize(done)});
    change.to = RunStatus::kDone;
    co_return change;
  }
  if (!change.events.empty()) {
    // Told whatever the end is; a fenced run is told by its new owner.
    CAISSON_CO_TRY(co_await store_.AppendEvents(fence, std::move(change.events)));
  }
  co_return Fail(std::move(*outcome.error));
}

}  // namespace caisson::runtime
