// Replies whose body a worker writes into a pipe: the loop moves it to the stream, at the pace of
// the slower.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "guest/connection.h"
#include "guest/file_ops.h"
#include "guest/loop.h"
#include "guest/server.h"
#include "guest/worker.h"

namespace caisson::guest {

class WorkerStreams {
 public:
  // Writes the body to `out` and says whether that is all of it. Until it has written a byte its
  // error is the reply; afterwards an error cuts the stream.
  using Job = std::function<FileResult(int out)>;

  // All outlive this.
  WorkerStreams(Loop& loop, Server& server, Workers& workers)
      : loop_(loop), server_(server), workers_(workers) {}

  // Replies to the connection, now or later. The descriptor `keep` stays open in the worker; `path`
  // goes into an error's body. When the stream breaks, nobody reads the pipe any more.
  void Start(Connection& connection, std::string path, int64_t deadline_ms,
             std::string_view media_type, int keep, const Job& job);
  // Those under way.
  size_t size() const { return transfers_.size(); }

 private:
  class Source;
  // One reply, from its start until its worker and its stream are both done with it.
  struct Transfer {
    uint64_t connection_id = 0;
    std::string path;
    std::string_view media_type;
    UniqueFd pipe;
    std::optional<FileResult> verdict;  // the worker's
    bool streaming = false;             // its source is there
  };

  void OnReadable(uint64_t id);
  void OnDone(uint64_t id, FileResult result);
  void Drop(uint64_t id);

  Loop& loop_;
  Server& server_;
  Workers& workers_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  uint64_t next_ = 1;
};

}  // namespace caisson::guest
