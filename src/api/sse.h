// A session's log as Server-Sent Events: the exact suffix behind a number, then what comes.
#pragma once

#include "api/context.h"
#include "base/ids.h"
#include "events/event.h"

namespace caisson::api {

struct StreamRequest {
  SessionId session;
  uint64_t after = 0;
  events::Visibility visibility = events::Visibility::kBuilder;
  // Ends the stream after the event that ends this run, and at the log's end when it is over
  // already; empty: goes on until the client leaves.
  RunId until_end_of;
};

// Refuses before the first byte (unknown session, a run of another, number beyond the log);
// afterwards the reader holds a cursor and nothing else. A client that leaves stops nothing but its
// stream.
Task<Result<Reply>> StreamEvents(Context& context, StreamRequest stream);

}  // namespace caisson::api
