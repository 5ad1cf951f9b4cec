#include "guest/search_calls.h"

#include <algorithm>
#include <string>

#include "guest/json.h"
#include "guest/protocol.h"
#include "guest/search.h"

namespace caisson::guest {
namespace {

constexpr int64_t kMaxMatches = 10'000;
constexpr int64_t kMaxContext = 100;  // lines on each side

// A search stops by itself a little before its deadline, so that what it found still arrives.
Result<int64_t> StopTime(const Connection& connection) {
  CAISSON_ASSIGN(int64_t deadline, CallDeadline(connection));
  int64_t span = deadline - connection.arrived_ms();
  return deadline - std::clamp<int64_t>(span / 10, 5, 500);
}

}  // namespace

void SearchCalls::Install() {
  files_.PostRoute(kPathGlob, [this](Connection& c, Fields& fields) { Glob(c, fields); });
  files_.PostRoute(kPathGrep, [this](Connection& c, Fields& fields) { Grep(c, fields); });
}

void SearchCalls::Glob(Connection& connection, Fields& fields) {
  auto path = PathFromFields(fields, "path");
  if (!path) return connection.ReplyError(path.error());
  GlobCall call;
  call.path = *path;
  call.pattern = fields.Required("pattern");
  call.limit = static_cast<size_t>(fields.IntOr("limit", kMaxMatches, 1, kMaxMatches));
  call.bare_any_depth = fields.Bool("bare_any_depth", true);
  call.directories = fields.Bool("directories", false);
  call.files_only = fields.Bool("files_only", false);
  call.hidden = fields.Bool("hidden", false);
  call.bare_dot_directories = fields.Bool("bare_dot_directories", false);
  call.relative = fields.Bool("relative", false);
  if (fields.error()) return connection.ReplyError(*fields.error());
  auto stop = StopTime(connection);
  if (!stop) return connection.ReplyError(stop.error());
  call.stop_ms = *stop;
  files_.RunInWorker(connection, FileCalls::Effect::kReads, path->text,
                     [this, call] { return GlobSearch(files_.paths(), call); });
}

void SearchCalls::Grep(Connection& connection, Fields& fields) {
  auto path = PathFromFields(fields, "path");
  if (!path) return connection.ReplyError(path.error());
  GrepCall call;
  call.path = *path;
  call.pattern = fields.Required("pattern");
  call.regex = fields.Bool("regex", false);
  call.glob = fields.BytesOr("glob", "");
  call.ignore_case = fields.Bool("ignore_case", false);
  call.hidden = fields.Bool("hidden", true);
  call.relative = fields.Bool("relative", false);
  call.before = fields.IntOr("before", 0, 0, kMaxContext);
  call.after = fields.IntOr("after", 0, 0, kMaxContext);
  call.limit = static_cast<size_t>(fields.IntOr("limit", 1000, 1, kMaxMatches));
  call.limit_per_file =
      static_cast<size_t>(fields.IntOr("limit_per_file", INT64_MAX, 1, INT64_MAX));
  call.max_line_bytes = static_cast<size_t>(fields.IntOr("max_line_bytes", 2000, 1, 1024 * 1024));
  if (fields.error()) return connection.ReplyError(*fields.error());
  auto stop = StopTime(connection);
  if (!stop) return connection.ReplyError(stop.error());
  call.stop_ms = *stop;
  files_.RunInWorker(connection, FileCalls::Effect::kReads, path->text,
                     [this, call] { return GrepSearch(files_.paths(), call); });
}

}  // namespace caisson::guest
