// Streaming a file's content out and in: GET and PUT /v1/files/content.
#pragma once

#include "guest/config.h"
#include "guest/connection.h"
#include "guest/identity.h"
#include "guest/loop.h"
#include "guest/paths.h"
#include "guest/server.h"

namespace caisson::guest {

// All outlive every call.
struct FileContentContext {
  Loop& loop;
  Server& server;
  const Identity& identity;
  const Paths& paths;
  const Config& config;
};

// Replies `deadline_exceeded` when a call's body has not arrived by then; gone with the sink that
// takes the body.
class BodyDeadline {
 public:
  BodyDeadline(const FileContentContext& context, uint64_t connection_id, int64_t deadline_ms,
               std::optional<std::string> path = std::nullopt);
  ~BodyDeadline() { loop_.Cancel(timer_); }
  BodyDeadline(const BodyDeadline&) = delete;
  BodyDeadline& operator=(const BodyDeadline&) = delete;

 private:
  Loop& loop_;
  Loop::TimerId timer_;
};

void GetFileContent(const FileContentContext& context, Connection& connection);
void PutFileContent(const FileContentContext& context, Connection& connection);

// "bytes=a-b", "a-" or "-n" of a content of `size` bytes.
struct ByteRange {
  uint64_t first = 0;
  uint64_t length = 0;
};
// kRangeNotSatisfiable beyond the end, for several ranges, and for what is no range.
Result<ByteRange> ParseRange(std::string_view header, uint64_t size);

// `name=1` in the query.
bool QueryFlag(const HttpRequest& request, std::string_view name);

}  // namespace caisson::guest
