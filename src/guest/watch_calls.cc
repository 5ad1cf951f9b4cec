#include "guest/watch_calls.h"

#include "guest/file_calls.h"
#include "guest/protocol.h"
#include "guest/text.h"
#include "guest/watch.h"

namespace caisson::guest {

void WatchCalls::Install() {
  server_.Route("GET", kPathFileWatch,
                [this](Connection& connection, std::string_view) { Watch(connection); });
}

void WatchCalls::Watch(Connection& connection) {
  auto path = PathFromQuery(connection.request());
  if (!path) return connection.ReplyError(path.error());
  if (streams_.size() >= kMaxWatches) {
    return connection.ReplyError(
        Error{ErrorCode::kOverloaded, Decimal(kMaxWatches) + " watches are under way", {}, {}},
        path->text);
  }
  WatchCall call{*path, QueryFlag(connection.request(), "recursive")};
  streams_.Start(connection, path->text, kNoDeadline, kMediaRecords, paths_.work_dir_fd(),
                 [this, call](int out) { return WatchTree(paths_, call, out); });
}

}  // namespace caisson::guest
