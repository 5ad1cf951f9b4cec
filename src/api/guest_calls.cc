#include "api/guest_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "guest/protocol.h"

namespace caisson::api {
namespace {

struct Call {
  std::shared_ptr<sandbox::GuestClient> guest;
  std::string target;
};

// The guest's target for this request: its path, and of the query what the call knows.
Task<Result<Call>> Prepare(Context& context, std::string path, Parameters parameters) {
  for (const auto& [name, value] : context.request.query()) {
    if (std::ranges::find(parameters, name) == parameters.end()) {
      co_return Fail(ErrorCode::kInvalidArgument,
                     fmt::format("\"{}\" is not a parameter of this call", name));
    }
  }
  Call call;
  CAISSON_CO_ASSIGN(call.guest, co_await OpenGuest(context));
  call.target = std::move(path);
  char separator = '?';
  for (const auto& [name, value] : context.request.query()) {
    call.target += fmt::format("{}{}={}", separator, name, http::EncodeQueryValue(value));
    separator = '&';
  }
  co_return call;
}

// The body of a request that takes JSON, as the guest gets it.
Task<Result<std::string>> BodyFor(Context& context, std::string_view method) {
  if (method != "POST") co_return std::string();
  CAISSON_CO_ASSIGN(json::object object, co_await ReadJson(context));
  co_return json::Serialize(object);
}

// The request's body, piece by piece.
class RequestBody final : public http::BodySource {
 public:
  explicit RequestBody(http::ServerRequest& request) : request_(request) {}
  Task<Result<std::string_view>> Next(Until) override {
    CAISSON_CO_ASSIGN(piece_, co_await request_.ReadBody());
    co_return std::string_view(piece_);
  }

 private:
  http::ServerRequest& request_;
  std::string piece_;
};

// Empty for a keep-alive.
std::string_view WatchEvent(guest::RecordType type) {
  constexpr std::pair<guest::RecordType, std::string_view> kEvents[] = {
      {guest::RecordType::kWatching, "watching"},
      {guest::RecordType::kChanges, "changes"},
      {guest::RecordType::kWatchOverflow, "overflow"},
      {guest::RecordType::kWatchEnd, "end"}};
  for (const auto& [record, event] : kEvents) {
    if (record == type) return event;
  }
  return {};
}

}  // namespace

Result<sandbox::Manager*> Sandboxes(Context& context) {
  if (context.services.sandboxes != nullptr) return context.services.sandboxes;
  return Fail(ErrorCode::kNoBackend,
              "this host cannot make sandboxes; `caisson doctor` says what is missing");
}

Until Within(Context& context, Millis time) {
  return {Deadline::After(context.services.clock, time), context.request.stop()};
}

Until WhileGuestLives(Context& context) { return Within(context, Millis(6 * guest::kKeepAliveMs)); }

Task<Result<void>> StartEvents(Context& context) {
  return context.response.Start(200, {{"Content-Type", "text/event-stream"},
                                      {"Cache-Control", "no-cache, no-transform"},
                                      {"X-Accel-Buffering", "no"},
                                      {"X-Request-Id", context.request_id}});
}

Task<Result<std::shared_ptr<sandbox::GuestClient>>> OpenGuest(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  co_return co_await sandboxes->Open(context.scope, std::move(id), Within(context, kGuestCallTime));
}

Task<Result<Reply>> PassJson(Context& context, std::string method, std::string path,
                             Parameters parameters) {
  CAISSON_CO_ASSIGN(Call call, co_await Prepare(context, std::move(path), parameters));
  CAISSON_CO_ASSIGN(std::string body, co_await BodyFor(context, method));
  CAISSON_CO_ASSIGN(std::string text, co_await call.guest->CallJson(
                                          std::move(method), std::move(call.target),
                                          std::move(body), Within(context, kGuestCallTime)));
  co_return Reply{200, {{"Content-Type", "application/json"}}, std::move(text), false};
}

Task<Result<Reply>> PassContent(Context& context, std::string method, std::string path,
                                Parameters parameters) {
  CAISSON_CO_ASSIGN(Call call, co_await Prepare(context, std::move(path), parameters));
  CAISSON_CO_ASSIGN(std::string body, co_await BodyFor(context, method));
  Until until = Within(context, kTransferTime);
  http::Headers forwarded;
  if (auto range = context.request.head().headers.Find("range"))
    forwarded.Add("Range", std::string(*range));
  std::string body_type = body.empty() ? "" : std::string(guest::kMediaJson);
  CAISSON_CO_ASSIGN(
      auto answer,
      co_await call.guest->Call(std::move(method), std::move(call.target), std::move(body_type),
                                std::move(body), until, std::move(forwarded)));
  http::Headers headers{{"X-Request-Id", context.request_id}};
  for (const char* name : {"Content-Type", "Caisson-Meta", "Content-Range"}) {
    if (auto value = answer.head.headers.Find(name)) headers.Add(name, std::string(*value));
  }
  CAISSON_CO_TRY(co_await context.response.Start(answer.head.status, std::move(headers)));
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await answer.connection->ReadBody(until));
    if (piece.empty()) break;
    CAISSON_CO_TRY(co_await context.response.Write(piece));
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

Task<Result<Reply>> PassWatch(Context& context, Parameters parameters) {
  // Its follower alone: nothing else ends with it, and the sandbox's own time goes on.
  context.request.StopWhenClientLeaves();
  CAISSON_CO_ASSIGN(Call call,
                    co_await Prepare(context, std::string(guest::kPathFileWatch), parameters));
  CAISSON_CO_ASSIGN(
      sandbox::RecordStream stream,
      co_await call.guest->Watch(std::move(call.target), Within(context, kGuestCallTime)));
  call.guest.reset();  // who holds it keeps the sandbox from being idle
  CAISSON_CO_TRY(co_await StartEvents(context));
  for (;;) {
    CAISSON_CO_ASSIGN(auto record, co_await stream.Next(WhileGuestLives(context)));
    if (!record.has_value()) break;
    std::string_view event = WatchEvent(record->type);
    if (event.empty()) {
      CAISSON_CO_TRY(co_await context.response.Write(": keep-alive\n\n"));
      continue;
    }
    // A payload is JSON on one line.
    CAISSON_CO_TRY(co_await context.response.Write(
        fmt::format("event: {}\ndata: {}\n\n", event, record->payload)));
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

Task<Result<Reply>> PassUpload(Context& context, std::string method, std::string path,
                               Parameters parameters) {
  CAISSON_CO_ASSIGN(Call call, co_await Prepare(context, std::move(path), parameters));
  RequestBody body(context.request);
  CAISSON_CO_ASSIGN(std::string text,
                    co_await call.guest->Upload(std::move(method), std::move(call.target), body,
                                                Within(context, kTransferTime)));
  co_return Reply{200, {{"Content-Type", "application/json"}}, std::move(text), false};
}

}  // namespace caisson::api
