// GET and PUT /v1/files/archive: a worker packs or unpacks, the loop moves bytes between its pipe
// and the stream, at the pace of the slower.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "guest/connection.h"
#include "guest/file_ops.h"
#include "guest/loop.h"
#include "guest/paths.h"
#include "guest/server.h"
#include "guest/worker.h"
#include "guest/worker_stream.h"

namespace caisson::guest {

class ArchiveCalls {
 public:
  // All outlive this.
  ArchiveCalls(Loop& loop, Server& server, Workers& workers, const Paths& paths)
      : loop_(loop),
        server_(server),
        workers_(workers),
        paths_(paths),
        packing_(loop, server, workers) {}
  void Install();

 private:
  class Sink;
  // One unpacking, from its start until its worker and its stream are both done with it.
  struct Transfer {
    uint64_t connection_id = 0;
    std::string path;
    UniqueFd pipe;
    std::optional<FileResult> verdict;  // the worker's
    bool streaming = false;             // its sink is there
    bool body_over = false;
    bool late = false;  // the body did not come in time
  };

  void Pack(Connection& connection);
  void Unpack(Connection& connection);
  void OnUnpacked(uint64_t id, WorkerFate fate, FileResult result);
  void Answer(Transfer& transfer);
  void Drop(uint64_t id);

  Loop& loop_;
  Server& server_;
  Workers& workers_;
  const Paths& paths_;
  WorkerStreams packing_;
  std::map<uint64_t, std::unique_ptr<Transfer>> transfers_;
  uint64_t next_ = 1;
};

}  // namespace caisson::guest
