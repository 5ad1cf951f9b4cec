#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {
namespace {

#define SESSION_COLUMNS \
  "id, agent, title, metadata, status, last_seq, active_run, created_at, updated_at"

Result<SessionRow> Read(const Statement& row) {
  SessionRow session;
  CAISSON_ASSIGN(session.id, IdFrom<SessionId>(row.Text(0)));
  session.agent = row.Text(1);
  session.title = row.Text(2);
  session.metadata = row.Text(3);
  auto status = StatusFromName<SessionStatus>(row.Text(4));
  if (!status)
    return Fail(ErrorCode::kStoreCorrupt, "a session has an unknown status", row.Text(4));
  session.status = *status;
  session.last_seq = static_cast<uint64_t>(row.Int(5));
  CAISSON_ASSIGN(session.active_run, IdFrom<RunId>(row.Text(6)));
  session.created_at = TimeFrom(row.Int(7));
  session.updated_at = TimeFrom(row.Int(8));
  return session;
}

}  // namespace

Result<SessionRow> CreateSession(WriteContext& context, const Scope& scope,
                                 const NewSession& session, const Idempotency& idempotency) {
  SessionId id = SessionId::Make(context.clock, context.random);
  CAISSON_ASSIGN(std::string earlier,
                 UseIdempotency(context, scope, "session", idempotency, id.text()));
  if (!earlier.empty()) {
    CAISSON_ASSIGN(id, IdFrom<SessionId>(earlier));
    return GetSession(context.db, scope, id);
  }
  CAISSON_TRY(context.db.Prepare("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, 0, '', ?, ?)")
                  .Bind(id.text(), scope.key(), session.agent, session.title, session.metadata,
                        NameOf(SessionStatus::kIdle), context.now_us(), context.now_us())
                  .Run());
  return GetSession(context.db, scope, id);
}

Result<SessionRow> GetSession(Database& db, const Scope& scope, const SessionId& id) {
  Statement row = db.Prepare("SELECT " SESSION_COLUMNS " FROM sessions WHERE scope = ? AND id = ?");
  CAISSON_ASSIGN(bool found, row.Bind(scope.key(), id.text()).Step());
  if (!found) return Fail(NoSuch("session", id.text()));
  return Read(row);
}

Result<Page<SessionRow>> ListSessions(Database& db, const Scope& scope, const PageRequest& page) {
  CAISSON_TRY(CheckPage(page));
  Statement row = db.Prepare("SELECT " SESSION_COLUMNS
                             " FROM sessions WHERE scope = ? AND id > ? ORDER BY id LIMIT ?");
  row.Bind(scope.key(), page.cursor, page.limit + 1);
  return ReadPage<SessionRow>(row, page, Read,
                              [](const SessionRow& last) { return last.id.text(); });
}

}  // namespace caisson::store::sqlite
