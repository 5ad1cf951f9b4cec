// GET /v1/files/watch: one worker a stream, which ends with it.
#pragma once

#include "guest/connection.h"
#include "guest/loop.h"
#include "guest/paths.h"
#include "guest/server.h"
#include "guest/worker_stream.h"

namespace caisson::guest {

class WatchCalls {
 public:
  // All outlive this.
  WatchCalls(Loop& loop, Server& server, Workers& workers, const Paths& paths)
      : server_(server), paths_(paths), streams_(loop, server, workers) {}
  void Install();

 private:
  void Watch(Connection& connection);

  Server& server_;
  const Paths& paths_;
  WorkerStreams streams_;
};

}  // namespace caisson::guest
