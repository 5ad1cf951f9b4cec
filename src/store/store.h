// The store: domain operations, each one transaction, awaitable. No SQL, handle or open transaction
// leaves a driver (store/sqlite, later store/postgres); both pass one suite.
//
// Rules that hold for every operation:
// - Whatever belongs to somebody takes a Scope; a foreign id and an unknown id give the same
//   kNotFound with the same message.
// - A worker's write takes a Fence. When another owner has claimed the run since, nothing is
//   written and the answer is kFenced: the worker stops.
// - Events are written in the transaction of the change they tell, numbered without gaps by the
//   session's own counter. When the task yields, they are durable and visible to readers.
// - kStoreBusy when the bounded queue of a driver is full: nothing was written; may be retried.
// - Times come from the driver's clock (one server: the injected Clock; PostgreSQL: the database).
//
// Threads: may be called from any event loop; a task resumes on the loop it was started on.
// Ownership: the store outlives every task it gave out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "base/scope.h"
#include "base/task.h"
#include "base/until.h"
#include "events/event.h"
#include "store/fence.h"
#include "store/rows.h"

namespace caisson::store {

template <typename T>
using StoreTask = caisson::Task<Result<T>>;

// Makes the create it belongs to repeatable: the same key with the same body gives the first
// result, with another body kIdempotencyMismatch. Kept 24 hours.
struct Idempotency {
  std::string key;          // 1–200 bytes; empty: none
  std::string body_digest;  // sha256 of the request, hex
};

struct PageRequest {
  uint32_t limit = 50;  // 1–1000
  std::string cursor;   // of an earlier page; empty: from the start. kInvalidArgument if not one
};

struct NewSession {
  std::string agent;
  std::string title;
  std::string metadata = "{}";
};

// What a session does with a message while a run is active.
enum class Multitask : uint8_t { kReject, kEnqueue, kInterrupt };

struct SubmitRequest {
  SessionId session;
  std::string content;  // JSON array of content parts
  Multitask multitask = Multitask::kReject;
  Idempotency idempotency;
};
struct Submitted {
  RunRow run;
  TaskRow task;
  MessageId message;
  bool replayed = false;  // true: an earlier submit with this key; nothing new was written
};

struct Claim {
  Fence fence;
  RunRow run;
  WallTime lease_until{};
  // The run had an owner before: its log may hold steps already, and its guest work of that owner.
  bool resumed = false;
};

// The end of a run, or its parking; a legal change by the run table, else kIllegalTransition.
struct RunChange {
  RunStatus to{};
  std::string error_code;  // kFailed only
  std::string error_message;
  std::vector<events::NewEvent> events;  // written before the run_state event that this adds
};

enum class CancelOutcome : uint8_t {
  kCancelled,  // it had no worker; it is over
  kRequested,  // its worker will end it
  kEnded,      // it was over already
};

struct EventQuery {
  SessionId session;
  uint64_t after = 0;     // exclusive
  uint32_t limit = 1000;  // of events; a page ends earlier at 4 MiB of payload
  events::Visibility visibility = events::Visibility::kEndUser;
  RunId run;  // empty: all
};
// Of what a query asks for, the next in order.
struct EventPage {
  std::vector<events::Event> events;
  // Everything up to this number has been looked at, also what the query does not ask for: the
  // `after` of the next page.
  uint64_t through = 0;
  // Nothing more is asked for, as the log was when it was read. False: the next page has some.
  bool at_end = false;
};

// A change of a sandbox's row, compare-and-set on its generation (kPreconditionFailed).
struct SandboxChange {
  SandboxStatus to{};
  std::string reason;
  std::optional<std::string> instance;
  // Told in the session's log, in the same transaction; empty when it has no session.
  std::vector<events::NewEvent> events;
  // False: a loss of power may undo it, with what followed it; the end of the server does not. For
  // states of what a loss of power ends too. It saves the wait for the disk. With events it is
  // durable all the same: no reader may see what can be undone.
  bool durable = true;
};
struct NewSandbox {
  SandboxId id;
  SessionId session;
  std::string kind = "main";
  std::string backend;
  std::string profile;
  std::string spec;
  bool needs_uids = false;  // allocate 65,536 host uids
  WallTime expires_at{};
  // What it becomes in the same transaction, for who asks its provider at once. Its `durable` is
  // that of the whole.
  std::optional<SandboxChange> then = std::nullopt;
};

class Store {
 public:
  virtual ~Store() = default;

  // --- Definitions: agents, providers, profiles -----------------------------------------------
  // Creates (expected_revision 0) or replaces (the revision it must have; kPreconditionFailed).
  virtual StoreTask<DefinitionRow> PutDefinition(Scope scope, DefinitionKind kind, std::string name,
                                                 std::string json, uint64_t expected_revision) = 0;
  virtual StoreTask<DefinitionRow> GetDefinition(Scope scope, DefinitionKind kind,
                                                 std::string name) = 0;
  virtual StoreTask<Page<DefinitionRow>> ListDefinitions(Scope scope, DefinitionKind kind,
                                                         PageRequest page) = 0;
  virtual StoreTask<void> DeleteDefinition(Scope scope, DefinitionKind kind, std::string name,
                                           uint64_t expected_revision) = 0;

  // --- Sessions ---------------------------------------------------------------------------------
  virtual StoreTask<SessionRow> CreateSession(Scope scope, NewSession session,
                                              Idempotency idempotency) = 0;
  virtual StoreTask<SessionRow> GetSession(Scope scope, SessionId id) = 0;
  virtual StoreTask<Page<SessionRow>> ListSessions(Scope scope, PageRequest page) = 0;

  // --- Runs, from outside -----------------------------------------------------------------------
  // Task, run, message and first events in one transaction. kSessionBusy names the active run.
  virtual StoreTask<Submitted> Submit(Scope scope, SubmitRequest request) = 0;
  virtual StoreTask<RunRow> GetRun(Scope scope, RunId id) = 0;
  virtual StoreTask<Page<RunRow>> ListRuns(Scope scope, SessionId session, PageRequest page) = 0;
  virtual StoreTask<CancelOutcome> RequestCancel(Scope scope, RunId id, std::string reason) = 0;

  // --- Runs, as their worker
  // ---------------------------------------------------------------------- The oldest run that is
  // queued or whose lease has expired; nothing if there is none.
  virtual StoreTask<std::optional<Claim>> ClaimRun(ReplicaId worker, Millis lease) = 0;
  // New end of the lease; kFenced when it is lost.
  virtual StoreTask<WallTime> RenewLease(Fence fence, Millis lease) = 0;
  // Pins the manifest, once, before the first model call; the same digest again is accepted.
  virtual StoreTask<void> PinManifest(Fence fence, std::string manifest, std::string digest) = 0;
  // Their numbers are consecutive; gives that of the first.
  virtual StoreTask<uint64_t> AppendEvents(Fence fence, std::vector<events::NewEvent> events) = 0;
  virtual StoreTask<RunRow> ChangeRun(Fence fence, RunChange change) = 0;

  // --- The log
  // ------------------------------------------------------------------------------------
  virtual StoreTask<EventPage> ReadEvents(Scope scope, EventQuery query) = 0;
  // The same, as soon as there is an event to give; at the deadline an empty page. kCancelled when
  // stopped. A reader loops over this and holds a cursor, never a queue.
  virtual StoreTask<EventPage> FollowEvents(Scope scope, EventQuery query, Until until) = 0;

  // --- The sandbox ledger
  // ------------------------------------------------------------------------- kAlreadyExists
  // (naming the id) when the session has a live sandbox of that kind.
  virtual StoreTask<SandboxRow> RequestSandbox(Scope scope, NewSandbox sandbox,
                                               Idempotency idempotency) = 0;
  virtual StoreTask<SandboxRow> GetSandbox(Scope scope, SandboxId id) = 0;
  // The newest of that kind, whatever became of it.
  virtual StoreTask<std::optional<SandboxRow>> LastSandbox(Scope scope, SessionId session,
                                                           std::string kind) = 0;
  virtual StoreTask<Page<SandboxRow>> ListSandboxes(Scope scope, PageRequest page) = 0;
  virtual StoreTask<SandboxRow> ChangeSandbox(Scope scope, SandboxId id, uint64_t generation,
                                              SandboxChange change) = 0;
  // Every row that is not over, of all scopes: for adoption at start and for the reaper only.
  struct Owned {
    Scope scope;
    SandboxRow sandbox;
  };
  virtual StoreTask<std::vector<Owned>> LiveSandboxes() = 0;

  // --- The store itself
  // --------------------------------------------------------------------------- O(1); for /ready.
  virtual StoreTask<void> Check() = 0;
  // All that was written before is durable when it yields.
  virtual StoreTask<void> Flush() = 0;
};

}  // namespace caisson::store
