// A session's log: read by pages, or streamed.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "api/router.h"
#include "api/sse.h"

namespace caisson::api {
namespace {

Result<events::Visibility> ReadVisibility(Context& context) {
  auto name = context.request.Query("visibility");
  if (!name.has_value()) return events::Visibility::kBuilder;
  auto visibility = events::VisibilityFromName(*name);
  // Internal events are for the server itself.
  if (visibility.has_value() && *visibility != events::Visibility::kInternal) return *visibility;
  return Fail(ErrorCode::kInvalidArgument, "\"visibility\" is \"end_user\" or \"builder\"");
}

Task<Result<Reply>> ListEvents(Context& context) {
  store::EventQuery query;
  CAISSON_CO_ASSIGN(query.session, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(query.after, ReadNumber(context, "after", 0));
  CAISSON_CO_ASSIGN(uint64_t limit, ReadNumber(context, "limit", 1000));
  query.limit = static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX));
  CAISSON_CO_ASSIGN(query.visibility, ReadVisibility(context));
  if (auto run = context.request.Query("run")) {
    CAISSON_CO_ASSIGN(query.run, RunId::Parse(*run));
  }
  CAISSON_CO_ASSIGN(auto page, co_await context.services.store.ReadEvents(context.scope, query));
  // Envelopes are JSON text already.
  std::string body = R"({"items":[)";
  for (const events::Event& event : page.events) {
    if (event.seq != page.events.front().seq) body += ',';
    body += events::ToJson(event);
  }
  body += fmt::format(R"(],"last_seq":{}}})", page.through);
  co_return Reply{200, {{"Content-Type", "application/json"}}, std::move(body), false};
}

Task<Result<Reply>> Stream(Context& context) {
  StreamRequest stream;
  CAISSON_CO_ASSIGN(stream.session, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(stream.after, ReadNumber(context, "after", 0));
  CAISSON_CO_ASSIGN(stream.visibility, ReadVisibility(context));
  if (auto run = context.request.Query("until_end_of")) {
    CAISSON_CO_ASSIGN(stream.until_end_of, RunId::Parse(*run));
  }
  // What a browser sends when it reconnects counts more than the address it was given at first.
  if (auto id = context.request.head().headers.Find("last-event-id")) {
    auto parsed = std::from_chars(id->data(), id->data() + id->size(), stream.after);
    if (parsed.ec != std::errc() || parsed.ptr != id->data() + id->size()) {
      co_return Fail(ErrorCode::kInvalidArgument, "Last-Event-ID is not the number of an event");
    }
  }
  co_return co_await StreamEvents(context, std::move(stream));
}

constexpr std::array kSchemas{
    Schema{"Event",
           "seq:int type:EventType version:int visibility:end_user|builder session_id:string "
           "run_id?:string task_id?:string at:time data:object"},
    Schema{"EventPage", "items:[Event] last_seq:int"},
};

constexpr std::array kRoutes{
    Route{"GET", "/v1/sessions/{id}/events",
          "Read the log: events behind `after`, at most `limit`.", "", One("EventPage"),
          ListEvents},
    Route{"GET", "/v1/sessions/{id}/stream",
          "Replay the log behind `after` (or Last-Event-ID) and follow it, as Server-Sent Events.",
          "", Success{"text/event-stream", ""}, Stream},
};

}  // namespace

Resource EventResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
