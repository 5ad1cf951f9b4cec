#include "api/sse.h"

#include <utility>

#include "store/states.h"

namespace caisson::api {
namespace {

constexpr uint32_t kBatch = 256;
constexpr Millis kKeepAlive{15'000};

// A parked run streams nothing more either: what continues it is another request.
bool IsOver(store::RunStatus status) {
  return store::IsTerminal(status) || status == store::RunStatus::kWaitingForApproval ||
         status == store::RunStatus::kPaused;
}

bool EndsRun(const events::Event& event, const RunId& run) {
  if (run.empty() || event.run != run || event.type != events::EventType::kRunState) return false;
  auto payload = json::ParseObject(event.payload);
  if (!payload) return false;
  const json::value* to = payload->if_contains("to_status");
  if (to == nullptr || !to->is_string()) return false;
  auto status = store::StatusFromName<store::RunStatus>(to->get_string());
  return status.has_value() && IsOver(*status);
}

}  // namespace

Task<Result<Reply>> StreamEvents(Context& context, StreamRequest stream) {
  store::Store& store = context.services.store;
  context.request.StopWhenClientLeaves();
  bool over = false;  // the end of the run is in the log, perhaps before what is asked for
  if (!stream.until_end_of.empty()) {
    CAISSON_CO_ASSIGN(store::RunRow run, co_await store.GetRun(context.scope, stream.until_end_of));
    if (run.session != stream.session) {
      co_return Fail(ErrorCode::kNotFound, "\"until_end_of\" names no run of this session");
    }
    over = IsOver(run.status);
  }
  store::EventQuery query{stream.session, stream.after, kBatch, stream.visibility, {}};
  CAISSON_CO_ASSIGN(auto page, co_await store.ReadEvents(context.scope, query));
  CAISSON_CO_TRY(co_await context.response.Start(200, {{"Content-Type", "text/event-stream"},
                                                       {"Cache-Control", "no-cache, no-transform"},
                                                       {"X-Accel-Buffering", "no"},
                                                       {"X-Request-Id", context.request_id}}));
  CAISSON_CO_TRY(co_await context.response.Write("retry: 3000\n\n"));
  const Clock& clock = context.services.clock;
  Deadline quiet = Deadline::After(clock, kKeepAlive);
  for (;;) {
    std::string text;
    bool ended = over && page.at_end;
    for (const events::Event& event : page.events) {
      text += ToSse(event);
      ended = ended || EndsRun(event, stream.until_end_of);
    }
    // Events that this reader does not see are silence, too.
    if (text.empty() && quiet.Passed(clock)) text = ": keep-alive\n\n";
    if (!text.empty()) {
      CAISSON_CO_TRY(co_await context.response.Write(text));
      quiet = Deadline::After(clock, kKeepAlive);
    }
    if (ended) break;
    query.after = page.through;
    auto next =
        co_await store.FollowEvents(context.scope, query, Until(quiet, context.request.stop()));
    if (!next) break;  // the server drains, or the session is gone
    page = std::move(*next);
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

}  // namespace caisson::api
