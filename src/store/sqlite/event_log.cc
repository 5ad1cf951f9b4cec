#include <fmt/format.h>

#include <algorithm>

#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {
namespace {

constexpr size_t kMaxPageBytes = 4 << 20;

Result<events::Event> Read(const Statement& row, const SessionId& session) {
  events::Event event;
  event.seq = static_cast<uint64_t>(row.Int(0));
  event.session = session;
  CAISSON_ASSIGN(event.run, IdFrom<RunId>(row.Text(1)));
  CAISSON_ASSIGN(event.task, IdFrom<TaskId>(row.Text(2)));
  auto type = events::EventTypeFromName(row.Text(3));
  if (!type)
    return Fail(ErrorCode::kStoreVersion, "the log has an unknown event type", row.Text(3));
  event.type = *type;
  event.version = static_cast<uint32_t>(row.Int(4));
  event.at = TimeFrom(row.Int(5));
  event.payload = row.Text(6);
  return event;
}

}  // namespace

Result<uint64_t> AppendToLog(WriteContext& context, const SessionId& session, const RunId& run,
                             const TaskId& task, const std::vector<events::NewEvent>& events) {
  // The counter and the events move in one transaction: no gap, whatever fails.
  Statement counter = context.db.Prepare(
      "UPDATE sessions SET last_seq = last_seq + ?, updated_at = ? WHERE id = ? RETURNING "
      "last_seq");
  CAISSON_ASSIGN(bool found, counter.Bind(events.size(), context.now_us(), session.text()).Step());
  if (!found) return Fail(NoSuch("session", session.text()));
  uint64_t first = static_cast<uint64_t>(counter.Int(0)) - events.size() + 1;
  uint64_t seq = first;
  for (const events::NewEvent& event : events) {
    CAISSON_TRY(events::ValidatePayload(event.type, event.payload));
    const events::EventTypeInfo& info = events::InfoOf(event.type);
    CAISSON_TRY(context.db.Prepare("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
                    .Bind(session.text(), seq, run.text(), task.text(), info.name,
                          events::kEventVersion, static_cast<int>(info.visibility),
                          context.now_us(), event.payload)
                    .Run());
    seq++;
  }
  context.touched.push_back(session.text());
  return first;
}

Result<EventPage> ReadEvents(Database& db, const Scope& scope, const EventQuery& query) {
  CAISSON_ASSIGN(SessionRow session, GetSession(db, scope, query.session));
  if (query.limit < 1 || query.limit > 10'000) {
    return Fail(ErrorCode::kInvalidArgument, "\"limit\" is not between 1 and 10000");
  }
  if (query.after > session.last_seq) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"after\" is {}, the log ends at {}", query.after, session.last_seq));
  }
  Statement row = db.Prepare(
      "SELECT seq, run, task, type, version, at, payload FROM events WHERE session = ? "
      "AND seq > ? AND visibility <= ? AND (? = '' OR run = ?) ORDER BY seq LIMIT ?");
  row.Bind(query.session.text(), query.after, static_cast<int>(query.visibility), query.run.text(),
           query.run.text(), query.limit + 1);  // one more, to know whether the page is the last
  EventPage page;
  size_t bytes = 0;
  for (;;) {
    CAISSON_ASSIGN(bool found, row.Step());
    page.at_end = !found;
    if (!found || bytes >= kMaxPageBytes || page.events.size() == query.limit) break;
    CAISSON_ASSIGN(events::Event event, Read(row, query.session));
    bytes += event.payload.size();
    page.events.push_back(std::move(event));
  }
  page.through = page.events.empty() ? query.after : page.events.back().seq;
  // The session's row was read before; events that came in between may be among the above.
  if (page.at_end) page.through = std::max(page.through, session.last_seq);
  return page;
}

}  // namespace caisson::store::sqlite
