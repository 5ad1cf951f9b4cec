// The bodies of the store's operations: each runs inside one transaction on one connection. One
// file a subject; sqlite_store.cc gives them threads and awaitables.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "store/sqlite/database.h"
#include "store/store.h"

namespace caisson::store::sqlite {

// What a writing transaction needs besides its arguments.
struct WriteContext {
  Database& db;
  WallTime now;
  const Clock& clock;
  Random& random;
  // Sessions whose log has grown: their readers are woken after the commit.
  std::vector<std::string>& touched;

  int64_t now_us() const { return now.time_since_epoch().count(); }
};

// --- shared
// --------------------------------------------------------------------------------------- The one
// answer for what is not there and for what belongs to somebody else.
Error NoSuch(std::string_view what, std::string_view id);
WallTime TimeFrom(int64_t micros);
// The scope that a row was written with; the only way from text to a Scope, and only from here.
Result<Scope> ScopeFromKey(const std::string& key);
// A row's id that does not parse means that the file was written by something else.
template <typename AnyId>
Result<AnyId> IdFrom(const std::string& text) {
  if (text.empty()) return AnyId();
  auto id = AnyId::Parse(text);
  if (!id) return Fail(ErrorCode::kStoreCorrupt, "the store holds an invalid id", text);
  return id;
}
Result<void> CheckPage(const PageRequest& page);
// Reads the rows of a list, `page.limit` at most, from a statement that selects one more; `cursor`
// names a row for the next page.
template <typename Row, typename Read, typename Cursor>
Result<Page<Row>> ReadPage(Statement& statement, const PageRequest& page, Read read,
                           Cursor cursor) {
  Page<Row> result;
  for (;;) {
    CAISSON_ASSIGN(bool found, statement.Step());
    if (!found) return result;
    if (result.rows.size() == page.limit) {
      result.next_cursor = cursor(result.rows.back());
      return result;
    }
    CAISSON_ASSIGN(Row row, read(statement));
    result.rows.push_back(std::move(row));
  }
}
// The id that this key gave before; empty when it is new (and is remembered with `result`).
// kIdempotencyMismatch for another body.
Result<std::string> UseIdempotency(WriteContext& context, const Scope& scope, std::string_view kind,
                                   const Idempotency& idempotency, const std::string& result);

// --- definitions
// ----------------------------------------------------------------------------------
Result<DefinitionRow> PutDefinition(WriteContext& context, const Scope& scope, DefinitionKind kind,
                                    const std::string& name, const std::string& json,
                                    uint64_t expected_revision);
Result<DefinitionRow> GetDefinition(Database& db, const Scope& scope, DefinitionKind kind,
                                    const std::string& name);
Result<Page<DefinitionRow>> ListDefinitions(Database& db, const Scope& scope, DefinitionKind kind,
                                            const PageRequest& page);
Result<void> DeleteDefinition(WriteContext& context, const Scope& scope, DefinitionKind kind,
                              const std::string& name, uint64_t expected_revision);

// --- sessions
// ---------------------------------------------------------------------------------------
Result<SessionRow> CreateSession(WriteContext& context, const Scope& scope,
                                 const NewSession& session, const Idempotency& idempotency);
Result<SessionRow> GetSession(Database& db, const Scope& scope, const SessionId& id);
Result<Page<SessionRow>> ListSessions(Database& db, const Scope& scope, const PageRequest& page);

// --- runs
// -------------------------------------------------------------------------------------------
Result<Submitted> Submit(WriteContext& context, const Scope& scope, const SubmitRequest& request);
Result<RunRow> GetRun(Database& db, const Scope& scope, const RunId& id);
Result<Page<RunRow>> ListRuns(Database& db, const Scope& scope, const SessionId& session,
                              const PageRequest& page);
Result<CancelOutcome> RequestCancel(WriteContext& context, const Scope& scope, const RunId& id,
                                    const std::string& reason);
Result<std::optional<Claim>> ClaimRun(WriteContext& context, const ReplicaId& worker, Millis lease);
Result<WallTime> RenewLease(WriteContext& context, const Fence& fence, Millis lease);
Result<void> PinManifest(WriteContext& context, const Fence& fence, const std::string& manifest,
                         const std::string& digest);
Result<RunRow> ChangeRun(WriteContext& context, const Fence& fence, const RunChange& change);

// --- the log
// ---------------------------------------------------------------------------------------- Numbers
// and writes; the caller has checked the right to. Gives the number of the first.
Result<uint64_t> AppendToLog(WriteContext& context, const SessionId& session, const RunId& run,
                             const TaskId& task, const std::vector<events::NewEvent>& events);
Result<uint64_t> AppendEvents(WriteContext& context, const Fence& fence,
                              const std::vector<events::NewEvent>& events);
Result<EventPage> ReadEvents(Database& db, const Scope& scope, const EventQuery& query);

// --- sandboxes
// --------------------------------------------------------------------------------------
Result<SandboxRow> RequestSandbox(WriteContext& context, const Scope& scope,
                                  const NewSandbox& sandbox, const Idempotency& idempotency);
Result<SandboxRow> GetSandbox(Database& db, const Scope& scope, const SandboxId& id);
Result<std::optional<SandboxRow>> LastSandbox(Database& db, const Scope& scope,
                                              const SessionId& session, const std::string& kind);
Result<Page<SandboxRow>> ListSandboxes(Database& db, const Scope& scope, const PageRequest& page);
Result<SandboxRow> ChangeSandbox(WriteContext& context, const Scope& scope, const SandboxId& id,
                                 uint64_t generation, const SandboxChange& change);
Result<std::vector<Store::Owned>> LiveSandboxes(Database& db);

}  // namespace caisson::store::sqlite
