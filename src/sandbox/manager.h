// Sandboxes as their users see them: made over the ledger, found again after a restart, ended with
// a receipt. Rows before effects (DESIGN.md, rule 3): whatever fails in between, the row says what
// to look for.
//
// A sandbox ends by itself after its ttl, and after its idle time without activity. Activity is any
// call in it while it lasts, and any of its commands that runs, followed or not. No activity are:
// watching its directories, asking for its state, and processes that commands have left behind.
// After a restart of the server the idle time begins anew.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "base/scope.h"
#include "net/loop.h"
#include "net/mutex.h"
#include "net/task_group.h"
#include "sandbox/backend.h"
#include "sandbox/guest_client.h"
#include "sandbox/router.h"
#include "sandbox/spec.h"
#include "sandbox/spec_json.h"
#include "store/store.h"
#include "telemetry/metrics.h"

namespace caisson::sandbox {

// Belongs to one loop; the store and the backend outlive it.
class Manager {
 public:
  Manager(net::Loop& loop, store::Store& store, Backend& backend, telemetry::Metrics& metrics,
          const Clock& clock, Random& random);

  // Settles what an earlier server left: living sandboxes are adopted, the rest is removed, with
  // and without a row. To be called once, before anything else.
  Task<Result<void>> Recover(Until until);
  // Starts ending sandboxes that are past their time, and what is nobody's.
  void StartReaper();
  // Stops the reaper. Sandboxes stay.
  Task<void> Stop();

  struct CreateRequest {
    SessionId session;  // empty: held by the caller alone
    SandboxSpec spec;
    bool needs_uids = true;
  };
  // Returns when it is ready, or failed and removed again.
  Task<Result<store::SandboxRow>> Create(Scope scope, CreateRequest request,
                                         store::Idempotency idempotency, Until until);
  // The session's sandbox, made if there is none that lives. Calls for one session wait for each
  // other, so that there is one.
  Task<Result<store::SandboxRow>> ForSession(Scope scope, SessionId session, SandboxSpec spec,
                                             Until until);
  // Whether a sandbox of this spec could be made here, without making it: the error of Create.
  Result<void> Check(const SandboxSpec& spec) const { return CheckSpec(backend_, spec); }
  const Declaration& declaration() const { return backend_.declaration(); }
  // Whoever holds the client may use it while the sandbox lives. Asks the guest for a sign of life
  // first: one that is gone is recorded as lost and told as kSandboxLost, never replaced silently.
  // kSandboxNotReady in the other states.
  Task<Result<std::shared_ptr<GuestClient>>> Open(Scope scope, SandboxId id, Until until);
  // What it uses now; no activity. kSandboxNotReady, kSandboxLost where it is not ready.
  Task<Result<Usage>> MeasureUsage(store::SandboxRow row, Until until);
  enum class ReleaseStatus : uint8_t {
    kComplete,  // it is gone; the row is the receipt, again and again
    kPending,   // it is being removed: tried again until it is gone
    kBusy,      // a run, a call or a command is in it, and only an idle one was to be released
    kAbsent,    // the session has never had one
  };
  struct Released {
    ReleaseStatus status{};
    std::optional<store::SandboxRow> row;
  };
  // Ends the session's sandbox; the session and its history stay, and its next run gets a new one.
  Task<Result<Released>> Release(Scope scope, SessionId session, bool idle_only, Until until);
  // Ends it. The row is the receipt; kTerminationUnconfirmed when not all is gone yet: it is tried
  // again until it is. `generation` must be the row's, if given, unless that is being ended or
  // over.
  Task<Result<store::SandboxRow>> Delete(Scope scope, SandboxId id,
                                         std::optional<uint64_t> generation, Until until);

 private:
  // Whether changes in the ledger are flushed one by one, see Declaration::survives_host.
  bool durable() const;
  Task<void> KeepRow(Result<void>& result);
  Task<Result<store::SandboxRow>> Provision(Scope scope, store::SandboxRow row, SandboxSpec spec,
                                            Until until);
  Task<Result<store::SandboxRow>> End(Scope scope, store::SandboxRow row, store::SandboxStatus last,
                                      std::string reason, Until until);
  // When two end a sandbox at once, one finds its row changed: how far the other has come, whose
  // receipt is both's. Any other failure stays what it is.
  Task<Result<store::SandboxRow>> EndedByAnother(Scope scope, store::SandboxRow row,
                                                 Result<store::SandboxRow> failed);
  Task<Result<store::SandboxRow>> Move(Scope scope, const store::SandboxRow& row,
                                       store::SandboxStatus to, std::string reason,
                                       std::optional<std::string> instance, std::string phase,
                                       std::optional<Millis> took);
  Task<Result<void>> RecoverOne(Scope scope, store::SandboxRow row, Until until);
  // Ends what has no row (any more): it is nobody's. `instances` must be older than `owned`: what
  // is made has its row first.
  Task<Result<void>> RemoveOrphans(std::vector<InstanceRef> instances,
                                   const std::vector<store::Store::Owned>& owned, Until until);
  Task<void> ReapLoop();
  Task<void> ReapOnce();
  static InstanceRef RefOf(const store::SandboxRow& row);

  net::Loop& loop_;
  store::Store& store_;
  Backend& backend_;
  telemetry::Metrics& metrics_;
  const Clock& clock_;
  Random& random_;
  // A sandbox that can be used. Who calls holds the client meanwhile.
  struct Live {
    std::shared_ptr<GuestClient> client;
    Millis idle;
    MonoTime active_at;
  };
  // Whether a call or a command is in it; not, when its guest is not there any more.
  Task<Result<bool>> InUse(SandboxId id, Until until);
  Task<bool> IsIdle(SandboxId id);
  void AddLive(const SandboxId& id, std::shared_ptr<GuestClient> client,
               const Lifetimes& lifetimes);

  std::map<std::string, Live> live_;  // by sandbox id
  struct SessionLock {
    net::Mutex mutex;
  };
  std::shared_ptr<SessionLock> LockOf(const SessionId& session);
  std::map<std::string, std::weak_ptr<SessionLock>> session_locks_;
  net::TaskGroup tasks_;
};

}  // namespace caisson::sandbox
