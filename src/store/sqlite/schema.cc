#include "store/sqlite/schema.h"

#include <fmt/format.h>

#include <array>
#include <string>

namespace caisson::store::sqlite {
namespace {

// Migrations, in order; the store's version is the number of those that were run. One that was
// released is never changed: a new one follows. Expand first, contract a release later.
// Times are Unix microseconds. `scope` is the canonical JSON of a Scope.
constexpr std::array<const char*, 2> kMigrations{R"sql(
CREATE TABLE definitions (
  scope TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  json TEXT NOT NULL, digest TEXT NOT NULL, revision INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  PRIMARY KEY (scope, kind, name)) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
  id TEXT PRIMARY KEY, scope TEXT NOT NULL, agent TEXT NOT NULL, title TEXT NOT NULL,
  metadata TEXT NOT NULL, status TEXT NOT NULL, last_seq INTEGER NOT NULL,
  active_run TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX sessions_by_scope ON sessions (scope, id);

CREATE TABLE tasks (
  id TEXT PRIMARY KEY, scope TEXT NOT NULL, session TEXT NOT NULL REFERENCES sessions (id),
  status TEXT NOT NULL, last_run TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE INDEX tasks_by_session ON tasks (session, id);

CREATE TABLE runs (
  id TEXT PRIMARY KEY, scope TEXT NOT NULL, session TEXT NOT NULL REFERENCES sessions (id),
  task TEXT NOT NULL REFERENCES tasks (id), message TEXT NOT NULL, status TEXT NOT NULL,
  attempt INTEGER NOT NULL, fence INTEGER NOT NULL, owner TEXT NOT NULL,
  lease_until INTEGER NOT NULL, manifest TEXT NOT NULL, manifest_digest TEXT NOT NULL,
  error_code TEXT NOT NULL, error_message TEXT NOT NULL, first_seq INTEGER NOT NULL,
  created_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER) STRICT;
CREATE INDEX runs_by_session ON runs (session, id);
CREATE UNIQUE INDEX runs_one_active ON runs (session)
  WHERE status IN ('queued', 'active', 'waiting_for_approval', 'paused', 'cancelling');
CREATE INDEX runs_to_claim ON runs (lease_until, id)
  WHERE status IN ('queued', 'active', 'cancelling');

CREATE TABLE events (
  session TEXT NOT NULL REFERENCES sessions (id), seq INTEGER NOT NULL,
  run TEXT NOT NULL, task TEXT NOT NULL, type TEXT NOT NULL, version INTEGER NOT NULL,
  visibility INTEGER NOT NULL, at INTEGER NOT NULL, payload TEXT NOT NULL,
  PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  scope TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, body_digest TEXT NOT NULL,
  result TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (scope, kind, key)) STRICT, WITHOUT ROWID;

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY, scope TEXT NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL,
  backend TEXT NOT NULL, profile TEXT NOT NULL, spec TEXT NOT NULL,
  generation INTEGER NOT NULL, status TEXT NOT NULL, status_reason TEXT NOT NULL,
  instance TEXT NOT NULL, uid_base INTEGER NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER NOT NULL) STRICT;
CREATE UNIQUE INDEX sandboxes_by_scope ON sandboxes (scope, id);
CREATE UNIQUE INDEX sandboxes_one_live ON sandboxes (session, kind)
  WHERE session <> '' AND status NOT IN ('released', 'failed', 'lost');
CREATE UNIQUE INDEX sandboxes_uids ON sandboxes (uid_base)
  WHERE uid_base <> 0 AND status NOT IN ('released', 'failed', 'lost');
CREATE INDEX sandboxes_live ON sandboxes (status) WHERE status NOT IN ('released', 'failed', 'lost');
)sql",
                                                 R"sql(
CREATE INDEX sandboxes_by_session ON sandboxes (session, kind, created_at) WHERE session <> '';
)sql"};

Result<int64_t> Version(Database& database) {
  Statement statement = database.Prepare("PRAGMA user_version");
  CAISSON_TRY(statement.Step());
  return statement.Int(0);
}

}  // namespace

Result<void> Migrate(Database& database) {
  CAISSON_TRY(database.Execute("BEGIN IMMEDIATE"));
  auto migrate = [&]() -> Result<void> {
    CAISSON_ASSIGN(int64_t version, Version(database));
    auto newest = static_cast<int64_t>(kMigrations.size());
    if (version > newest) {
      return Fail(ErrorCode::kStoreVersion,
                  fmt::format("the store has version {}, this program knows up to {}; use a newer "
                              "caisson, or another data directory",
                              version, newest));
    }
    for (int64_t i = version; i < newest; i++) {
      CAISSON_TRY(database.Execute(kMigrations[static_cast<size_t>(i)]));
    }
    return database.Execute(fmt::format("PRAGMA user_version = {}", newest));
  };
  auto result = migrate();
  auto end = database.Execute(result ? "COMMIT" : "ROLLBACK");
  return result ? end : result;
}

}  // namespace caisson::store::sqlite
