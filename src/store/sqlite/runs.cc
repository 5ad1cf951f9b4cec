#include <fmt/format.h>

#include "json/json.h"
#include "store/fence_maker.h"
#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {
namespace {

#define RUN_COLUMNS                                                                                \
  "id, session, task, status, attempt, fence, owner, manifest_digest, error_code, error_message, " \
  "first_seq, created_at, started_at, ended_at"

Result<RunRow> Read(const Statement& row) {
  RunRow run;
  CAISSON_ASSIGN(run.id, IdFrom<RunId>(row.Text(0)));
  CAISSON_ASSIGN(run.session, IdFrom<SessionId>(row.Text(1)));
  CAISSON_ASSIGN(run.task, IdFrom<TaskId>(row.Text(2)));
  auto status = StatusFromName<RunStatus>(row.Text(3));
  if (!status) return Fail(ErrorCode::kStoreCorrupt, "a run has an unknown status", row.Text(3));
  run.status = *status;
  run.attempt = static_cast<uint32_t>(row.Int(4));
  run.fence = static_cast<uint64_t>(row.Int(5));
  CAISSON_ASSIGN(run.owner, IdFrom<ReplicaId>(row.Text(6)));
  run.manifest_digest = row.Text(7);
  run.error_code = row.Text(8);
  run.error_message = row.Text(9);
  run.first_seq = static_cast<uint64_t>(row.Int(10));
  run.created_at = TimeFrom(row.Int(11));
  if (!row.IsNull(12)) run.started_at = TimeFrom(row.Int(12));
  if (!row.IsNull(13)) run.ended_at = TimeFrom(row.Int(13));
  return run;
}

Result<RunRow> ReadById(Database& db, const RunId& id) {
  Statement row = db.Prepare("SELECT " RUN_COLUMNS " FROM runs WHERE id = ?");
  CAISSON_ASSIGN(bool found, row.Bind(id.text()).Step());
  if (!found) return Fail(NoSuch("run", id.text()));
  return Read(row);
}

// The run that `fence` still owns, or kFenced.
Result<RunRow> OwnRun(WriteContext& context, const Fence& fence) {
  Statement row = context.db.Prepare("SELECT " RUN_COLUMNS
                                     " FROM runs WHERE id = ? AND fence = ? AND owner <> ''");
  CAISSON_ASSIGN(bool found, row.Bind(fence.run().text(), fence.value()).Step());
  if (found) return Read(row);
  return Fail(ErrorCode::kFenced,
              fmt::format("another worker has taken over run {}", fence.run().text()));
}

events::NewEvent StateEvent(RunStatus from, RunStatus to, const std::string& reason) {
  json::object payload{{"from_status", NameOf(from)}, {"to_status", NameOf(to)}};
  if (!reason.empty()) payload["reason"] = reason;
  return {events::EventType::kRunState, json::Serialize(payload)};
}

// Moves a run and, by the effects table, its task and session; tells it in the log.
Result<void> Move(WriteContext& context, const RunRow& run, RunStatus to,
                  const std::string& reason) {
  if (!IsLegal(run.status, to)) {
    return Fail(ErrorCode::kIllegalTransition,
                fmt::format("run {} is {}; it cannot become {}", run.id.text(), NameOf(run.status),
                            NameOf(to)));
  }
  const RunEffect& effect = RunEffects()[static_cast<size_t>(to)];
  bool over = IsTerminal(to);
  // A run that nobody works on gives up its owner, so that its fence is worth nothing any more.
  bool parked = over || to == RunStatus::kWaitingForApproval || to == RunStatus::kPaused;
  CAISSON_TRY(context.db
                  .Prepare("UPDATE runs SET status = ?, owner = iif(?, '', owner), "
                           "ended_at = iif(?, ?, NULL) WHERE id = ?")
                  .Bind(NameOf(to), parked ? 1 : 0, over ? 1 : 0, context.now_us(), run.id.text())
                  .Run());
  CAISSON_TRY(context.db.Prepare("UPDATE tasks SET status = ?, updated_at = ? WHERE id = ?")
                  .Bind(NameOf(effect.task), context.now_us(), run.task.text())
                  .Run());
  CAISSON_TRY(
      context.db.Prepare("UPDATE sessions SET status = ?, active_run = iif(?, '', ?) WHERE id = ?")
          .Bind(NameOf(effect.session), over ? 1 : 0, run.id.text(), run.session.text())
          .Run());
  CAISSON_TRY(
      AppendToLog(context, run.session, run.id, run.task, {StateEvent(run.status, to, reason)}));
  return {};
}

Result<TaskRow> ReadTask(Database& db, const TaskId& id) {
  Statement row = db.Prepare(
      "SELECT id, session, status, last_run, created_at, updated_at FROM tasks WHERE id = ?");
  CAISSON_ASSIGN(bool found, row.Bind(id.text()).Step());
  if (!found) return Fail(NoSuch("task", id.text()));
  TaskRow task;
  CAISSON_ASSIGN(task.id, IdFrom<TaskId>(row.Text(0)));
  CAISSON_ASSIGN(task.session, IdFrom<SessionId>(row.Text(1)));
  auto status = StatusFromName<TaskStatus>(row.Text(2));
  if (!status) return Fail(ErrorCode::kStoreCorrupt, "a task has an unknown status", row.Text(2));
  task.status = *status;
  CAISSON_ASSIGN(task.last_run, IdFrom<RunId>(row.Text(3)));
  task.created_at = TimeFrom(row.Int(4));
  task.updated_at = TimeFrom(row.Int(5));
  return task;
}

Result<Submitted> Replay(WriteContext& context, const Scope& scope, const std::string& run_id) {
  Submitted submitted;
  CAISSON_ASSIGN(RunId id, IdFrom<RunId>(run_id));
  CAISSON_ASSIGN(submitted.run, GetRun(context.db, scope, id));
  CAISSON_ASSIGN(submitted.task, ReadTask(context.db, submitted.run.task));
  Statement message = context.db.Prepare("SELECT message FROM runs WHERE id = ?");
  CAISSON_TRY(message.Bind(run_id).Step());
  CAISSON_ASSIGN(submitted.message, IdFrom<MessageId>(message.Text(0)));
  submitted.replayed = true;
  return submitted;
}

}  // namespace

Result<Submitted> Submit(WriteContext& context, const Scope& scope, const SubmitRequest& request) {
  if (request.multitask != Multitask::kReject) {
    return Fail(
        ErrorCode::kFeatureNotBuilt,
        "\"multitask\" can only be \"reject\" for now: wait for the active run, or cancel it");
  }
  RunId run = RunId::Make(context.clock, context.random);
  TaskId task = TaskId::Make(context.clock, context.random);
  MessageId message = MessageId::Make(context.clock, context.random);
  CAISSON_ASSIGN(SessionRow session, GetSession(context.db, scope, request.session));
  CAISSON_ASSIGN(std::string earlier,
                 UseIdempotency(context, scope, "run", request.idempotency, run.text()));
  if (!earlier.empty()) return Replay(context, scope, earlier);
  if (!session.active_run.empty()) {
    return Fail(ErrorCode::kSessionBusy,
                fmt::format("session {} has an active run, {}; wait for its end or cancel it",
                            session.id.text(), session.active_run.text()));
  }
  CAISSON_TRY(context.db.Prepare("INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?)")
                  .Bind(task.text(), scope.key(), session.id.text(), NameOf(TaskStatus::kSubmitted),
                        run.text(), context.now_us(), context.now_us())
                  .Run());
  CAISSON_ASSIGN(json::value content, json::Parse(request.content));
  json::object payload{{"message_id", message.text()}, {"content", std::move(content)}};
  CAISSON_ASSIGN(uint64_t first,
                 AppendToLog(context, session.id, run, task,
                             {{events::EventType::kUserMessage, json::Serialize(payload)}}));
  CAISSON_TRY(context.db
                  .Prepare("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, 1, 0, '', 0, '', '', '', "
                           "'', ?, ?, NULL, NULL)")
                  .Bind(run.text(), scope.key(), session.id.text(), task.text(), message.text(),
                        NameOf(RunStatus::kQueued), first, context.now_us())
                  .Run());
  CAISSON_TRY(context.db.Prepare("UPDATE sessions SET status = ?, active_run = ? WHERE id = ?")
                  .Bind(NameOf(SessionStatus::kActive), run.text(), session.id.text())
                  .Run());
  Submitted submitted;
  CAISSON_ASSIGN(submitted.run, ReadById(context.db, run));
  CAISSON_ASSIGN(submitted.task, ReadTask(context.db, task));
  submitted.message = message;
  return submitted;
}

Result<RunRow> GetRun(Database& db, const Scope& scope, const RunId& id) {
  Statement row = db.Prepare("SELECT " RUN_COLUMNS " FROM runs WHERE scope = ? AND id = ?");
  CAISSON_ASSIGN(bool found, row.Bind(scope.key(), id.text()).Step());
  if (!found) return Fail(NoSuch("run", id.text()));
  return Read(row);
}

Result<Page<RunRow>> ListRuns(Database& db, const Scope& scope, const SessionId& session,
                              const PageRequest& page) {
  CAISSON_TRY(CheckPage(page));
  CAISSON_TRY(GetSession(db, scope, session));
  Statement row = db.Prepare("SELECT " RUN_COLUMNS
                             " FROM runs WHERE session = ? AND id > ? ORDER BY id LIMIT ?");
  row.Bind(session.text(), page.cursor, page.limit + 1);
  return ReadPage<RunRow>(row, page, Read, [](const RunRow& last) { return last.id.text(); });
}

Result<CancelOutcome> RequestCancel(WriteContext& context, const Scope& scope, const RunId& id,
                                    const std::string& reason) {
  CAISSON_ASSIGN(RunRow run, GetRun(context.db, scope, id));
  if (IsTerminal(run.status)) return CancelOutcome::kEnded;
  if (run.status == RunStatus::kCancelling) return CancelOutcome::kRequested;
  bool has_worker = run.status == RunStatus::kActive;
  CAISSON_TRY(
      Move(context, run, has_worker ? RunStatus::kCancelling : RunStatus::kCancelled, reason));
  return has_worker ? CancelOutcome::kRequested : CancelOutcome::kCancelled;
}

Result<std::optional<Claim>> ClaimRun(WriteContext& context, const ReplicaId& worker,
                                      Millis lease) {
  Statement next = context.db.Prepare(
      "SELECT id, scope FROM runs WHERE status IN ('queued', 'active', 'cancelling') "
      "AND lease_until < ? ORDER BY lease_until, id LIMIT 1");
  CAISSON_ASSIGN(bool found, next.Bind(context.now_us()).Step());
  if (!found) return std::nullopt;
  CAISSON_ASSIGN(RunId id, IdFrom<RunId>(next.Text(0)));
  auto scope = ScopeFromKey(next.Text(1));
  if (!scope) return Fail(scope.error());
  CAISSON_ASSIGN(RunRow before, ReadById(context.db, id));
  WallTime lease_until = context.now + lease;
  CAISSON_TRY(
      context.db
          .Prepare("UPDATE runs SET fence = fence + 1, owner = ?, lease_until = ?, "
                   "started_at = coalesce(started_at, ?) WHERE id = ?")
          .Bind(worker.text(), lease_until.time_since_epoch().count(), context.now_us(), id.text())
          .Run());
  if (before.status == RunStatus::kQueued) {
    CAISSON_TRY(Move(context, before, RunStatus::kActive, ""));
  }
  CAISSON_ASSIGN(RunRow run, ReadById(context.db, id));
  Fence fence = FenceMaker::Make(std::move(*scope), run.session, run.id, run.fence);
  return Claim{std::move(fence), std::move(run), lease_until, before.fence > 0};
}

Result<WallTime> RenewLease(WriteContext& context, const Fence& fence, Millis lease) {
  CAISSON_TRY(OwnRun(context, fence));
  WallTime lease_until = context.now + lease;
  CAISSON_TRY(context.db.Prepare("UPDATE runs SET lease_until = ? WHERE id = ?")
                  .Bind(lease_until.time_since_epoch().count(), fence.run().text())
                  .Run());
  return lease_until;
}

Result<void> PinManifest(WriteContext& context, const Fence& fence, const std::string& manifest,
                         const std::string& digest) {
  CAISSON_ASSIGN(RunRow run, OwnRun(context, fence));
  if (run.manifest_digest == digest) return {};
  if (!run.manifest_digest.empty()) {
    return Fail(ErrorCode::kConflict,
                fmt::format("run {} has its manifest already", run.id.text()));
  }
  CAISSON_TRY(context.db.Prepare("UPDATE runs SET manifest = ?, manifest_digest = ? WHERE id = ?")
                  .Bind(manifest, digest, run.id.text())
                  .Run());
  std::string payload = fmt::format(R"({{"digest":"{}","manifest":{}}})", digest, manifest);
  CAISSON_TRY(AppendToLog(context, run.session, run.id, run.task,
                          {{events::EventType::kManifest, std::move(payload)}}));
  return {};
}

Result<uint64_t> AppendEvents(WriteContext& context, const Fence& fence,
                              const std::vector<events::NewEvent>& events) {
  CAISSON_ASSIGN(RunRow run, OwnRun(context, fence));
  if (events.empty()) return Fail(ErrorCode::kInternal, "no events to append");
  return AppendToLog(context, run.session, run.id, run.task, events);
}

Result<RunRow> ChangeRun(WriteContext& context, const Fence& fence, const RunChange& change) {
  CAISSON_ASSIGN(RunRow run, OwnRun(context, fence));
  if (!change.events.empty()) {
    CAISSON_TRY(AppendToLog(context, run.session, run.id, run.task, change.events));
  }
  CAISSON_TRY(Move(context, run, change.to, change.error_code));
  CAISSON_TRY(context.db.Prepare("UPDATE runs SET error_code = ?, error_message = ? WHERE id = ?")
                  .Bind(change.error_code, change.error_message, run.id.text())
                  .Run());
  return ReadById(context.db, run.id);
}

}  // namespace caisson::store::sqlite
