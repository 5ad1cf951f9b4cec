#include "sandbox/manager.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "base/failpoint.h"
#include "json/json.h"

namespace caisson::sandbox {
namespace {

using store::SandboxRow;
using store::SandboxStatus;

constexpr Millis kReapEvery{5'000};
constexpr Millis kEndPatience{20'000};
constexpr Millis kSignOfLife{10'000};
constexpr std::string_view kMain = "main";

events::NewEvent LifecycleEvent(const SandboxId& id, std::string_view backend,
                                std::string_view phase, std::optional<Millis> took) {
  json::object payload{{"sandbox_id", id.text()}, {"phase", phase}, {"sandbox_backend", backend}};
  if (took.has_value()) payload["duration_ms"] = took->count();
  return {events::EventType::kSandbox, json::Serialize(payload)};
}

Error NotUsable(const SandboxRow& row) {
  bool ends = row.status == SandboxStatus::kReady;  // and the row will say so
  std::string_view is = ends ? "ending" : NameOf(row.status);
  return Error{IsTerminal(row.status) ? ErrorCode::kSandboxLost : ErrorCode::kSandboxNotReady,
               fmt::format("sandbox {} is {}", row.id.text(), is),
               {},
               {}};
}

}  // namespace

Manager::Manager(net::Loop& loop, store::Store& store, Backend& backend,
                 telemetry::Metrics& metrics, const Clock& clock, Random& random)
    : loop_(loop),
      store_(store),
      backend_(backend),
      metrics_(metrics),
      clock_(clock),
      random_(random) {}

InstanceRef Manager::RefOf(const SandboxRow& row) {
  return {row.id, row.generation, row.uid_base, row.instance};
}

Task<Result<SandboxRow>> Manager::Move(Scope scope, const SandboxRow& row, SandboxStatus to,
                                       std::string reason, std::optional<std::string> instance,
                                       std::string phase, std::optional<Millis> took) {
  store::SandboxChange change{to, std::move(reason), std::move(instance), {}, durable()};
  if (!row.session.empty()) {
    change.events.push_back(LifecycleEvent(row.id, row.backend, phase, took));
  }
  return store_.ChangeSandbox(std::move(scope), row.id, row.generation, std::move(change));
}

Task<Result<SandboxRow>> Manager::Create(Scope scope, CreateRequest request,
                                         store::Idempotency idempotency, Until until) {
  CAISSON_CO_TRY(CheckSpec(backend_, request.spec));
  store::NewSandbox wanted;
  wanted.id = SandboxId::Make(clock_, random_);
  wanted.session = request.session;
  wanted.kind = kMain;
  wanted.backend = backend_.name();
  wanted.profile = request.spec.profile;
  wanted.spec = json::SerializeCanonical(SpecToJson(request.spec));
  wanted.needs_uids = request.needs_uids;
  wanted.expires_at = clock_.Now() + request.spec.lifetimes.ttl;
  SandboxId id = wanted.id;
  wanted.then = {SandboxStatus::kProvisioning, "", std::nullopt, {}, durable()};
  if (!wanted.session.empty()) {
    wanted.then->events.push_back(LifecycleEvent(id, wanted.backend, "requested", std::nullopt));
  }
  CAISSON_CO_ASSIGN(SandboxRow row, co_await store_.RequestSandbox(scope, std::move(wanted),
                                                                   std::move(idempotency)));
  CAISSON_FAILPOINT("sandbox.requested");
  if (row.id != id) co_return row;  // an earlier request with this key
  co_return co_await Provision(std::move(scope), std::move(row), std::move(request.spec),
                               std::move(until));
}

bool Manager::durable() const { return backend_.declaration().survives_host; }

Task<void> Manager::KeepRow(Result<void>& result) { result = co_await store_.Flush(); }

Task<Result<SandboxRow>> Manager::Provision(Scope scope, SandboxRow row, SandboxSpec spec,
                                            Until until) {
  MonoTime start = clock_.MonoNow();
  Lifetimes lifetimes = spec.lifetimes;
  // The row becomes durable meanwhile, if it is not: before the caller knows the sandbox.
  Result<void> kept;
  net::TaskGroup keeping;
  if (!durable()) keeping.Start(KeepRow(kept));
  auto acquired = co_await backend_.Acquire(RefOf(row), std::move(spec), until);
  co_await keeping.Join();
  CAISSON_FAILPOINT("sandbox.acquired");
  if (!kept) acquired = Fail(std::move(kept.error()));
  auto spent = std::chrono::duration_cast<Micros>(clock_.MonoNow() - start);
  metrics_.SandboxCreated(backend_.name(), acquired ? "ready" : acquired.error().wire(), spent);
  if (!acquired) {
    Error why = std::move(acquired.error());
    // What is left of the attempt goes before the caller hears of it.
    Until patience(Deadline::After(clock_, kEndPatience));
    CAISSON_CO_TRY(co_await End(std::move(scope), std::move(row), SandboxStatus::kFailed,
                                std::string(why.wire()), patience));
    co_return Fail(std::move(why));
  }
  for (const Acquired::Step& step : acquired->steps) {
    metrics_.SandboxStep(backend_.name(), step.name, step.took);
  }
  AddLive(row.id,
          std::make_shared<GuestClient>(std::move(acquired->dialer), std::move(acquired->token),
                                        row.generation, clock_),
          lifetimes);
  auto took = std::chrono::duration_cast<Millis>(spent);
  co_return co_await Move(std::move(scope), row, SandboxStatus::kReady, "",
                          std::move(acquired->instance), "provisioned", took);
}

std::shared_ptr<Manager::SessionLock> Manager::LockOf(const SessionId& session) {
  std::erase_if(session_locks_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<SessionLock>& known = session_locks_[session.text()];
  auto lock = known.lock();
  if (!lock) known = lock = std::make_shared<SessionLock>();
  return lock;
}

Task<Result<Manager::Released>> Manager::Release(Scope scope, SessionId session, bool idle_only,
                                                 Until until) {
  auto lock = LockOf(session);
  auto guard = co_await lock->mutex.Lock();
  CAISSON_CO_ASSIGN(auto last, co_await store_.LastSandbox(scope, session, std::string(kMain)));
  if (!last.has_value()) co_return Released{ReleaseStatus::kAbsent, std::nullopt};
  if (IsTerminal(last->status)) co_return Released{ReleaseStatus::kComplete, std::move(last)};
  if (idle_only && last->status == SandboxStatus::kReady) {
    CAISSON_CO_ASSIGN(bool used, co_await InUse(last->id, until));
    // Last, so that nothing is awaited between this answer and the end.
    CAISSON_CO_ASSIGN(store::SessionRow row, co_await store_.GetSession(scope, std::move(session)));
    auto live = live_.find(last->id.text());
    used = used || (live != live_.end() && live->second.client.use_count() > 1);
    if (used || !row.active_run.empty()) co_return Released{ReleaseStatus::kBusy, std::move(last)};
  }
  SandboxId id = last->id;
  auto ended = co_await End(scope, std::move(*last), SandboxStatus::kReleased, "released", until);
  if (ended && IsTerminal(ended->status)) {
    co_return Released{ReleaseStatus::kComplete, std::move(*ended)};
  }
  if (!ended && ended.error().code != ErrorCode::kTerminationUnconfirmed) {
    co_return Fail(std::move(ended.error()));
  }
  CAISSON_CO_ASSIGN(SandboxRow now, co_await store_.GetSandbox(std::move(scope), std::move(id)));
  co_return Released{ReleaseStatus::kPending, std::move(now)};
}

Task<Result<SandboxRow>> Manager::ForSession(Scope scope, SessionId session, SandboxSpec spec,
                                             Until until) {
  auto lock = LockOf(session);
  auto guard = co_await lock->mutex.Lock();
  CAISSON_CO_ASSIGN(auto row, co_await store_.LastSandbox(scope, session, std::string(kMain)));
  if (row.has_value() && row->status == SandboxStatus::kReady) co_return std::move(*row);
  if (row.has_value() && !IsTerminal(row->status)) {
    co_return Fail(ErrorCode::kSandboxNotReady,
                   fmt::format("the session's sandbox {} is {}; delete it to get a new one",
                               row->id.text(), NameOf(row->status)));
  }
  co_return co_await Create(std::move(scope), {std::move(session), std::move(spec), true}, {},
                            std::move(until));
}

Task<Result<std::shared_ptr<GuestClient>>> Manager::Open(Scope scope, SandboxId id, Until until) {
  CAISSON_CO_ASSIGN(SandboxRow row, co_await store_.GetSandbox(scope, id));
  auto found = live_.find(id.text());
  if (row.status == SandboxStatus::kReady && found != live_.end()) {
    found->second.active_at = clock_.MonoNow();
    std::shared_ptr<GuestClient> client = found->second.client;
    auto alive = co_await client->Connect(until.Within(clock_, kSignOfLife));
    if (alive) co_return client;
    if (alive.error().code == ErrorCode::kCancelled) co_return Fail(alive.error());
    Until patience(Deadline::After(clock_, kEndPatience));
    CAISSON_CO_TRY(co_await End(std::move(scope), std::move(row), SandboxStatus::kLost,
                                "no sign of life", patience));
    co_return Fail(ErrorCode::kSandboxLost,
                   fmt::format("sandbox {} is gone, and its files with it", id.text()),
                   alive.error().ToString());
  }
  co_return Fail(NotUsable(row));
}

Task<Result<Usage>> Manager::MeasureUsage(SandboxRow row, Until until) {
  if (row.status != SandboxStatus::kReady) co_return Fail(NotUsable(row));
  co_return co_await backend_.MeasureUsage(RefOf(row), std::move(until));
}

Task<Result<SandboxRow>> Manager::Delete(Scope scope, SandboxId id,
                                         std::optional<uint64_t> generation, Until until) {
  CAISSON_CO_ASSIGN(SandboxRow row, co_await store_.GetSandbox(scope, id));
  // What is being ended, or over, is what the caller wants: its id is never used again.
  bool ends = IsTerminal(row.status) || row.status == SandboxStatus::kReleasing;
  if (generation.has_value() && *generation != row.generation && !ends) {
    co_return Fail(ErrorCode::kPreconditionFailed,
                   fmt::format("sandbox {} has generation {}", id.text(), row.generation));
  }
  if (IsTerminal(row.status)) co_return row;  // the receipt, again
  co_return co_await End(std::move(scope), std::move(row), SandboxStatus::kReleased, "deleted",
                         std::move(until));
}

Task<Result<SandboxRow>> Manager::End(Scope scope, SandboxRow row, SandboxStatus last,
                                      std::string reason, Until until) {
  live_.erase(row.id.text());
  bool asked = row.status == SandboxStatus::kReleasing;
  // A row that was never ready fails; it does not pass through releasing.
  if (!asked && last == SandboxStatus::kReleased) {
    auto moved = co_await Move(scope, row, SandboxStatus::kReleasing, reason, std::nullopt,
                               "teardown_started", std::nullopt);
    if (!moved) moved = co_await EndedByAnother(scope, row, std::move(moved));
    if (!moved || IsTerminal(moved->status)) co_return moved;
    row = std::move(*moved);
  }
  CAISSON_FAILPOINT("sandbox.releasing");
  MonoTime start = clock_.MonoNow();
  CAISSON_CO_ASSIGN(Termination end, co_await backend_.Terminate(RefOf(row), std::move(until)));
  CAISSON_FAILPOINT("sandbox.terminated");
  if (!end.complete()) {
    co_return Fail(ErrorCode::kTerminationUnconfirmed,
                   fmt::format("sandbox {} is being removed; ask again", row.id.text()),
                   end.pending_reason);
  }
  auto took = std::chrono::duration_cast<Millis>(clock_.MonoNow() - start);
  metrics_.SandboxEnded(backend_.name(), NameOf(last));
  std::string phase = last == SandboxStatus::kLost ? "lost" : "teardown_complete";
  auto moved = co_await Move(scope, row, last, std::move(reason), "", std::move(phase), took);
  if (!moved) moved = co_await EndedByAnother(std::move(scope), row, std::move(moved));
  co_return moved;
}

Task<Result<SandboxRow>> Manager::EndedByAnother(Scope scope, SandboxRow row,
                                                 Result<SandboxRow> failed) {
  if (failed.error().code != ErrorCode::kPreconditionFailed) co_return failed;
  CAISSON_CO_ASSIGN(SandboxRow now, co_await store_.GetSandbox(std::move(scope), row.id));
  bool ends = IsTerminal(now.status) || now.status == SandboxStatus::kReleasing;
  co_return ends ? Result<SandboxRow>(std::move(now)) : std::move(failed);
}

Task<Result<void>> Manager::Recover(Until until) {
  CAISSON_CO_ASSIGN(auto instances, co_await backend_.List(until));
  CAISSON_CO_ASSIGN(auto owned, co_await store_.LiveSandboxes());
  CAISSON_CO_TRY(co_await RemoveOrphans(std::move(instances), owned, until));
  for (store::Store::Owned& one : owned) {
    CAISSON_CO_TRY(co_await RecoverOne(std::move(one.scope), std::move(one.sandbox), until));
  }
  co_return Result<void>();
}

Task<Result<void>> Manager::RemoveOrphans(std::vector<InstanceRef> instances,
                                          const std::vector<store::Store::Owned>& owned,
                                          Until until) {
  std::set<std::string_view> known;
  for (const store::Store::Owned& one : owned) known.insert(one.sandbox.id.text());
  Result<void> result;
  for (InstanceRef& ref : instances) {
    if (known.contains(ref.id.text())) continue;
    // One that cannot be removed does not keep the others.
    auto end = co_await backend_.Terminate(std::move(ref), until);
    if (end && end->complete()) metrics_.SandboxEnded(backend_.name(), "orphan");
    if (!end && result) result = Fail(std::move(end.error()));
  }
  co_return result;
}

Task<Result<void>> Manager::RecoverOne(Scope scope, SandboxRow row, Until until) {
  if (row.status == SandboxStatus::kReady) {
    auto attached = co_await backend_.Attach(RefOf(row), until);
    if (attached) {
      auto client = std::make_shared<GuestClient>(
          std::move(attached->dialer), std::move(attached->token), row.generation, clock_);
      if (co_await client->Hello(until)) {
        // One that cannot be read is no reason to end it, nor to stay down: its ttl is in the row.
        auto spec = SpecFromLedger(row.spec);
        AddLive(row.id, std::move(client), spec ? spec->lifetimes : Lifetimes());
        co_return Result<void>();
      }
    }
  }
  // Half made, half removed or dead: removed, and the row says how it ended.
  bool was_ready = row.status == SandboxStatus::kReady || row.status == SandboxStatus::kSuspended ||
                   row.status == SandboxStatus::kUnclean;
  SandboxStatus last = row.status == SandboxStatus::kReleasing ? SandboxStatus::kReleased
                       : was_ready                             ? SandboxStatus::kLost
                                                               : SandboxStatus::kFailed;
  auto ended = co_await End(std::move(scope), std::move(row), last, "interrupted", until);
  // Not confirmed: the reaper asks again.
  if (!ended && ended.error().code != ErrorCode::kTerminationUnconfirmed)
    co_return Fail(ended.error());
  co_return Result<void>();
}

void Manager::StartReaper() { tasks_.Start(ReapLoop()); }

Task<void> Manager::Stop() {
  tasks_.RequestStop();
  co_await tasks_.Join();
}

Task<void> Manager::ReapLoop() {
  for (;;) {
    Until until(Deadline::After(clock_, kReapEvery), tasks_.stop());
    if (!co_await loop_.Sleep(until)) co_return;
    co_await ReapOnce();
  }
}

Task<void> Manager::ReapOnce() {
  Until listing(Deadline::After(clock_, kEndPatience), tasks_.stop());
  auto instances = co_await backend_.List(listing);
  auto owned = co_await store_.LiveSandboxes();
  if (!owned) co_return;  // the store is busy: the next round comes soon
  if (instances) (void)co_await RemoveOrphans(std::move(*instances), *owned, listing);
  for (store::Store::Owned& one : *owned) {
    bool ready = one.sandbox.status == SandboxStatus::kReady;
    bool expired = ready && one.sandbox.expires_at <= clock_.Now();
    std::string reason = expired ? "expired" : "";
    if (one.sandbox.status == SandboxStatus::kReleasing) reason = "deleted";
    if (ready && !expired && co_await IsIdle(one.sandbox.id)) reason = "idle";
    if (reason.empty()) continue;
    Until patience(Deadline::After(clock_, kEndPatience), tasks_.stop());
    // A failure is tried again in the next round; the row stays as it is until then.
    (void)co_await End(std::move(one.scope), std::move(one.sandbox), SandboxStatus::kReleased,
                       std::move(reason), patience);
  }
}

void Manager::AddLive(const SandboxId& id, std::shared_ptr<GuestClient> client,
                      const Lifetimes& lifetimes) {
  client->LimitCommands(lifetimes.max_exec);
  live_[id.text()] = {std::move(client), lifetimes.idle, clock_.MonoNow()};
}

Task<Result<bool>> Manager::InUse(SandboxId id, Until until) {
  auto found = live_.find(id.text());
  if (found == live_.end()) co_return false;
  if (found->second.client.use_count() > 1) co_return true;
  std::shared_ptr<GuestClient> client = found->second.client;
  auto busy = co_await client->Busy(std::move(until));
  if (busy) co_return busy;
  ErrorCode code = busy.error().code;
  bool is_gone = code == ErrorCode::kUnavailable || code == ErrorCode::kConnectionLost;
  co_return is_gone ? Result<bool>(false) : std::move(busy);  // nobody is in what is not there
}

// Nothing may be awaited between this answer and the end: a call could come in.
Task<bool> Manager::IsIdle(SandboxId id) {
  auto found = live_.find(id.text());
  if (found == live_.end()) co_return false;
  MonoTime active_at = found->second.active_at;
  bool used = found->second.client.use_count() > 1;
  if (!used && clock_.MonoNow() - active_at < found->second.idle) co_return false;
  if (!used) {
    Until patience(Deadline::After(clock_, kSignOfLife), tasks_.stop());
    auto in_use = co_await InUse(id, std::move(patience));
    if (!in_use) co_return false;  // asked again in the next round
    used = *in_use;
    found = live_.find(id.text());
    if (found == live_.end()) co_return false;
    used = used || found->second.client.use_count() > 1 || found->second.active_at != active_at;
  }
  if (used) found->second.active_at = clock_.MonoNow();
  co_return !used;
}

}  // namespace caisson::sandbox
