#include "api/sse.h"

#include <utility>

#include "store/states.h"

namespace caisson::api {
namespace {

constexpr uint32_t kBatch = 256;
constexpr Millis kKeepAlive{15'000};

bool EndsRun(const events::Event& event, const RunId& run) {
  if (run.empty() || event.run != run || event.type != events::EventType::kRunState) return false;
  auto payload = json::ParseObject(event.payload);
  if (!payload) return false;
  const json::value* to = payload->if_contains("to_status");
  if (to == nullptr || !to->is_string()) return false;
  auto status = store::StatusFromName<store::RunStatus>(to->get_string());
  // A parked run streams nothing more either: what continues it is another request.
  return status.has_value() &&
         (store::IsTerminal(*status) || *status == store::RunStatus::kWaitingForApproval ||
          *status == store::RunStatus::kPaused);
}

}  // namespace

Task<Result<Reply>> StreamEvents(Context& context, StreamRequest stream) {
  store::Store& store = context.services.store;
  store::EventQuery query{stream.session, stream.after, kBatch, stream.visibility, {}};
  CAISSON_CO_ASSIGN(auto batch, co_await store.ReadEvents(context.scope, query));
  CAISSON_CO_TRY(co_await context.response.Start(200, {{"Content-Type", "text/event-stream"},
                                                       {"Cache-Control", "no-cache, no-transform"},
                                                       {"X-Accel-Buffering", "no"},
                                                       {"X-Request-Id", context.request_id}}));
  CAISSON_CO_TRY(co_await context.response.Write("retry: 3000\n\n"));
  uint64_t seen = stream.after;  // the log's end, as far as this reader has looked
  bool ended = false;
  while (!ended) {
    std::string text;
    for (const events::Event& event : batch) {
      text += ToSse(event);
      query.after = event.seq;
      ended = ended || EndsRun(event, stream.until_end_of);
    }
    if (!text.empty()) CAISSON_CO_TRY(co_await context.response.Write(text));
    if (ended) break;
    if (batch.size() < kBatch) {
      seen = std::max(seen, query.after);
      Until until(Deadline::After(context.services.clock, kKeepAlive), context.request.stop());
      auto last = co_await store.WaitForEvents(context.scope, stream.session, seen, until);
      if (!last) break;  // the server drains, or the session is gone
      if (*last == seen) CAISSON_CO_TRY(co_await context.response.Write(": keep-alive\n\n"));
      seen = *last;
    }
    CAISSON_CO_ASSIGN(batch, co_await store.ReadEvents(context.scope, query));
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

}  // namespace caisson::api
