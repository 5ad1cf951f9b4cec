#include <fmt/format.h>

#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {
namespace {

#define SANDBOX_COLUMNS                                                                      \
  "id, session, kind, backend, profile, spec, generation, status, status_reason, instance, " \
  "uid_base, created_at, updated_at, expires_at"

// Host uids of sandboxes: 65,536 each, from 2^19 on, above what distributions give to people and
// containers of users, below 2^30, where those of `caisson exec` without a server begin.
constexpr int64_t kUidsEach = 65'536;
constexpr int64_t kFirstUidBase = 524'288;
constexpr int64_t kLastUidBase = (1ll << 30) - kUidsEach;

Result<SandboxRow> Read(const Statement& row) {
  SandboxRow sandbox;
  CAISSON_ASSIGN(sandbox.id, IdFrom<SandboxId>(row.Text(0)));
  CAISSON_ASSIGN(sandbox.session, IdFrom<SessionId>(row.Text(1)));
  sandbox.kind = row.Text(2);
  sandbox.backend = row.Text(3);
  sandbox.profile = row.Text(4);
  sandbox.spec = row.Text(5);
  sandbox.generation = static_cast<uint64_t>(row.Int(6));
  auto status = StatusFromName<SandboxStatus>(row.Text(7));
  if (!status)
    return Fail(ErrorCode::kStoreCorrupt, "a sandbox has an unknown status", row.Text(7));
  sandbox.status = *status;
  sandbox.status_reason = row.Text(8);
  sandbox.instance = row.Text(9);
  sandbox.uid_base = static_cast<uint32_t>(row.Int(10));
  sandbox.created_at = TimeFrom(row.Int(11));
  sandbox.updated_at = TimeFrom(row.Int(12));
  sandbox.expires_at = TimeFrom(row.Int(13));
  return sandbox;
}

// The lowest block of uids that no live sandbox has.
Result<int64_t> AllocateUids(Database& db) {
  Statement row = db.Prepare(
      "SELECT uid_base FROM sandboxes WHERE uid_base <> 0 "
      "AND status NOT IN ('released', 'failed', 'lost') ORDER BY uid_base");
  int64_t candidate = kFirstUidBase;
  for (;;) {
    CAISSON_ASSIGN(bool found, row.Step());
    if (!found || row.Int(0) > candidate) break;
    candidate = row.Int(0) + kUidsEach;
  }
  if (candidate > kLastUidBase) {
    return Fail(ErrorCode::kOverloaded, "every block of host uids is in use by a sandbox");
  }
  return candidate;
}

}  // namespace

Result<SandboxRow> RequestSandbox(WriteContext& context, const Scope& scope,
                                  const NewSandbox& sandbox, const Idempotency& idempotency) {
  CAISSON_ASSIGN(std::string earlier,
                 UseIdempotency(context, scope, "sandbox", idempotency, sandbox.id.text()));
  if (!earlier.empty()) {
    CAISSON_ASSIGN(SandboxId id, IdFrom<SandboxId>(earlier));
    return GetSandbox(context.db, scope, id);
  }
  if (!sandbox.session.empty()) {
    CAISSON_ASSIGN(auto last, LastSandbox(context.db, scope, sandbox.session, sandbox.kind));
    if (last.has_value() && !IsTerminal(last->status)) {
      return Fail(ErrorCode::kAlreadyExists, fmt::format("session {} has sandbox {} already",
                                                         sandbox.session.text(), last->id.text()));
    }
  }
  int64_t uid_base = 0;
  if (sandbox.needs_uids) {
    CAISSON_ASSIGN(uid_base, AllocateUids(context.db));
  }
  CAISSON_TRY(context.db
                  .Prepare("INSERT INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, '', '', ?, ?, "
                           "?, ?)")
                  .Bind(sandbox.id.text(), scope.key(), sandbox.session.text(), sandbox.kind,
                        sandbox.backend, sandbox.profile, sandbox.spec,
                        NameOf(SandboxStatus::kRequested), uid_base, context.now_us(),
                        context.now_us(), sandbox.expires_at.time_since_epoch().count())
                  .Run());
  if (sandbox.then) return ChangeSandbox(context, scope, sandbox.id, 1, *sandbox.then);
  return GetSandbox(context.db, scope, sandbox.id);
}

Result<SandboxRow> GetSandbox(Database& db, const Scope& scope, const SandboxId& id) {
  Statement row =
      db.Prepare("SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE scope = ? AND id = ?");
  CAISSON_ASSIGN(bool found, row.Bind(scope.key(), id.text()).Step());
  if (!found) return Fail(NoSuch("sandbox", id.text()));
  return Read(row);
}

Result<std::optional<SandboxRow>> LastSandbox(Database& db, const Scope& scope,
                                              const SessionId& session, const std::string& kind) {
  CAISSON_TRY(GetSession(db, scope, session));
  Statement row = db.Prepare("SELECT " SANDBOX_COLUMNS
                             " FROM sandboxes WHERE session = ? AND session <> '' AND kind = ? "
                             "ORDER BY created_at DESC, id DESC LIMIT 1");
  CAISSON_ASSIGN(bool found, row.Bind(session.text(), kind).Step());
  if (!found) return std::nullopt;
  CAISSON_ASSIGN(SandboxRow sandbox, Read(row));
  return sandbox;
}

Result<Page<SandboxRow>> ListSandboxes(Database& db, const Scope& scope, const PageRequest& page) {
  CAISSON_TRY(CheckPage(page));
  Statement row = db.Prepare("SELECT " SANDBOX_COLUMNS
                             " FROM sandboxes WHERE scope = ? AND id > ? ORDER BY id LIMIT ?");
  row.Bind(scope.key(), page.cursor, page.limit + 1);
  return ReadPage<SandboxRow>(row, page, Read,
                              [](const SandboxRow& last) { return last.id.text(); });
}

Result<SandboxRow> ChangeSandbox(WriteContext& context, const Scope& scope, const SandboxId& id,
                                 uint64_t generation, const SandboxChange& change) {
  CAISSON_ASSIGN(SandboxRow row, GetSandbox(context.db, scope, id));
  if (row.generation != generation) {
    return Fail(ErrorCode::kPreconditionFailed, fmt::format("sandbox {} has generation {}, not {}",
                                                            id.text(), row.generation, generation));
  }
  if (!IsLegal(row.status, change.to)) {
    return Fail(ErrorCode::kIllegalTransition,
                fmt::format("sandbox {} is {}; it cannot become {}", id.text(), NameOf(row.status),
                            NameOf(change.to)));
  }
  CAISSON_TRY(context.db
                  .Prepare("UPDATE sandboxes SET generation = generation + 1, status = ?, "
                           "status_reason = ?, instance = ?, updated_at = ? WHERE id = ?")
                  .Bind(NameOf(change.to), change.reason, change.instance.value_or(row.instance),
                        context.now_us(), id.text())
                  .Run());
  if (!row.session.empty() && !change.events.empty()) {
    CAISSON_TRY(AppendToLog(context, row.session, RunId(), TaskId(), change.events));
  }
  return GetSandbox(context.db, scope, id);
}

Result<std::vector<Store::Owned>> LiveSandboxes(Database& db) {
  Statement row = db.Prepare("SELECT " SANDBOX_COLUMNS
                             ", scope FROM sandboxes "
                             "WHERE status NOT IN ('released', 'failed', 'lost') ORDER BY id");
  std::vector<Store::Owned> result;
  for (;;) {
    CAISSON_ASSIGN(bool found, row.Step());
    if (!found) return result;
    CAISSON_ASSIGN(SandboxRow sandbox, Read(row));
    auto scope = ScopeFromKey(row.Text(14));
    if (!scope) return Fail(scope.error());
    result.push_back({std::move(*scope), std::move(sandbox)});
  }
}

}  // namespace caisson::store::sqlite
