#include "api/resources.h"

namespace caisson::api {

json::object ToJson(const store::SessionRow& row) {
  json::object body{{"id", row.id.text()},
                    {"agent", row.agent},
                    {"title", row.title},
                    {"status", NameOf(row.status)},
                    {"last_seq", row.last_seq},
                    {"created_at", FormatTime(row.created_at)},
                    {"updated_at", FormatTime(row.updated_at)}};
  body["metadata"] = json::ParseObject(row.metadata).value_or(json::object());
  if (!row.active_run.empty()) body["active_run"] = row.active_run.text();
  return body;
}

json::object ToJson(const store::RunRow& row) {
  json::object body{{"id", row.id.text()},
                    {"session_id", row.session.text()},
                    {"task_id", row.task.text()},
                    {"status", NameOf(row.status)},
                    {"attempt", row.attempt},
                    {"first_seq", row.first_seq},
                    {"created_at", FormatTime(row.created_at)}};
  if (!row.manifest_digest.empty()) body["manifest_digest"] = row.manifest_digest;
  if (row.started_at.has_value()) body["started_at"] = FormatTime(*row.started_at);
  if (row.ended_at.has_value()) body["ended_at"] = FormatTime(*row.ended_at);
  if (!row.error_code.empty()) {
    body["error"] = json::object{{"code", row.error_code}, {"message", row.error_message}};
  }
  return body;
}

}  // namespace caisson::api
