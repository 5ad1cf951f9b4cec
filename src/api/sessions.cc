// Sessions, their messages and runs.
#include <fmt/format.h>

#include <array>

#include "agent/definition.h"
#include "api/resources.h"
#include "api/router.h"
#include "api/sse.h"
#include "json/reader.h"

namespace caisson::api {
namespace {

// The agent must exist and ask for nothing that is not built: said before the session exists.
Task<Result<void>> CheckAgent(Context& context, std::string name) {
  CAISSON_CO_ASSIGN(store::DefinitionRow row,
                    co_await context.services.store.GetDefinition(
                        context.scope, store::DefinitionKind::kAgent, name));
  CAISSON_CO_ASSIGN(json::object definition, json::ParseObject(row.json));
  CAISSON_CO_ASSIGN(agent::AgentDefinition agent, agent::ParseAgent(definition));
  if (agent.unbuilt_features.empty()) co_return Result<void>();
  std::string names;
  for (const std::string& feature : agent.unbuilt_features) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", feature);
  }
  co_return Fail(ErrorCode::kFeatureNotBuilt,
                 fmt::format("agent \"{}\" asks for {}, which this version does not do yet; "
                             "/v1/capabilities lists what is on",
                             name, names));
}

Task<Result<Reply>> CreateSession(Context& context) {
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  store::NewSession session;
  session.agent = reader.RequiredString("agent", 100);
  session.title = reader.String("title").value_or("");
  if (session.title.size() > 500) reader.Wrong("title", "is longer than 500 bytes");
  if (const json::object* metadata = reader.Object("metadata")) {
    session.metadata = json::SerializeCanonical(*metadata);
    if (session.metadata.size() > 16'384) reader.Wrong("metadata", "is larger than 16 KiB");
  }
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  CAISSON_CO_TRY(co_await CheckAgent(context, session.agent));
  store::Idempotency key = ReadIdempotency(context, json::SerializeCanonical(std::move(body)));
  CAISSON_CO_ASSIGN(store::SessionRow row, co_await context.services.store.CreateSession(
                                               context.scope, std::move(session), std::move(key)));
  co_return Reply::Json(201, ToJson(row));
}

Task<Result<Reply>> GetSession(Context& context) {
  CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::SessionRow row,
                    co_await context.services.store.GetSession(context.scope, std::move(id)));
  co_return Reply::Json(200, ToJson(row));
}

Task<Result<Reply>> ListSessions(Context& context) {
  CAISSON_CO_ASSIGN(store::PageRequest page, ReadPage(context));
  CAISSON_CO_ASSIGN(auto rows,
                    co_await context.services.store.ListSessions(context.scope, std::move(page)));
  json::array items;
  for (const auto& row : rows.rows) items.push_back(ToJson(row));
  co_return Reply::Json(200, {{"items", std::move(items)}, {"next_cursor", rows.next_cursor}});
}

// A message's content as the log keeps it: an array of parts.
Result<json::array> ReadContent(json::ObjectReader& reader, const json::object& body) {
  const json::value* content = body.if_contains("content");
  if (content != nullptr && content->is_string()) {
    (void)reader.String("content");
    return json::array{json::object{{"type", "text"}, {"text", content->get_string()}}};
  }
  const json::array* parts = reader.Array("content");
  if (parts == nullptr || parts->empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "\"content\" is required: a text, or an array of parts that is not empty");
  }
  for (size_t i = 0; i < parts->size(); i++) {
    std::string path = fmt::format("content[{}]", i);
    const json::object* part = (*parts)[i].if_object();
    if (part == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" must be an object", path));
    }
    json::ObjectReader part_reader(*part, path);
    (void)part_reader.Choice("type", {"text"});
    if (!part_reader.Has("type")) part_reader.Wrong("type", "is required: \"text\"");
    (void)part_reader.RequiredString("text", kMaxJsonBody);
    CAISSON_TRY(part_reader.Finish(json::ObjectReader::Unknown::kRefuse));
  }
  return *parts;
}

Task<Result<Reply>> PostMessage(Context& context) {
  CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  store::SubmitRequest submit;
  submit.session = id;
  CAISSON_CO_ASSIGN(json::array content, ReadContent(reader, body));
  submit.content = json::Serialize(json::value(std::move(content)));
  auto multitask = reader.Choice("multitask", {"reject", "enqueue", "interrupt"});
  if (multitask == "enqueue") submit.multitask = store::Multitask::kEnqueue;
  if (multitask == "interrupt") submit.multitask = store::Multitask::kInterrupt;
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  submit.idempotency = ReadIdempotency(context, json::SerializeCanonical(std::move(body)));
  CAISSON_CO_ASSIGN(store::Submitted submitted,
                    co_await context.services.store.Submit(context.scope, std::move(submit)));
  if (context.services.run_submitted) context.services.run_submitted();
  auto accept = context.request.head().headers.Find("accept");
  if (accept.has_value() && accept->find("text/event-stream") != std::string_view::npos) {
    StreamRequest stream;
    stream.session = std::move(id);
    stream.after = submitted.run.first_seq - 1;
    stream.until_end_of = submitted.run.id;
    co_return co_await StreamEvents(context, std::move(stream));
  }
  co_return Reply::Json(202, {{"run", ToJson(submitted.run)},
                              {"message_id", submitted.message.text()},
                              {"replayed", submitted.replayed}});
}

Task<Result<Reply>> ListRuns(Context& context) {
  CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::PageRequest page, ReadPage(context));
  CAISSON_CO_ASSIGN(auto rows, co_await context.services.store.ListRuns(
                                   context.scope, std::move(id), std::move(page)));
  json::array items;
  for (const auto& row : rows.rows) items.push_back(ToJson(row));
  co_return Reply::Json(200, {{"items", std::move(items)}, {"next_cursor", rows.next_cursor}});
}

Task<Result<Reply>> GetRun(Context& context) {
  CAISSON_CO_ASSIGN(RunId id, RunId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::RunRow row,
                    co_await context.services.store.GetRun(context.scope, std::move(id)));
  co_return Reply::Json(200, ToJson(row));
}

Task<Result<Reply>> CancelRun(Context& context) {
  CAISSON_CO_ASSIGN(RunId id, RunId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::CancelOutcome outcome, co_await context.services.store.RequestCancel(
                                                      context.scope, id, "cancelled by a caller"));
  CAISSON_CO_ASSIGN(store::RunRow row,
                    co_await context.services.store.GetRun(context.scope, std::move(id)));
  co_return Reply::Json(outcome == store::CancelOutcome::kRequested ? 202 : 200, ToJson(row));
}

constexpr std::string_view kSessionSchema = R"({"type":"object","required":["agent"],"properties":{
"agent":{"type":"string"},"title":{"type":"string"},"metadata":{"type":"object"}}})";
constexpr std::string_view kMessageSchema =
    R"({"type":"object","required":["content"],"properties":{
"content":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"object","properties":{
"type":{"enum":["text"]},"text":{"type":"string"}}}}]},
"multitask":{"enum":["reject","enqueue","interrupt"]}}})";

constexpr std::array kSchemas{
    Schema{"Session",
           "id:string agent:string title:string status:SessionStatus last_seq:int created_at:time "
           "updated_at:time metadata:object active_run?:string"},
    Schema{"Run",
           "id:string session_id:string task_id:string status:RunStatus attempt:int first_seq:int "
           "created_at:time manifest_digest?:string started_at?:time ended_at?:time "
           "error?:RunError"},
    Schema{"RunError", "code:string message:string"},
    Schema{"Submitted", "run:Run message_id:string replayed:bool"},
};

constexpr std::array kRoutes{
    Route{"POST", "/v1/sessions", "Start a session with an agent.", kSessionSchema, One("Session"),
          CreateSession},
    Route{"GET", "/v1/sessions", "List sessions.", "", PageOf("Session"), ListSessions},
    Route{"GET", "/v1/sessions/{id}", "Show a session.", "", One("Session"), GetSession},
    Route{"POST", "/v1/sessions/{id}/messages",
          "Send a message, which starts a run: 202, or with Accept: text/event-stream its events "
          "as they come.",
          kMessageSchema, One("Submitted"), PostMessage},
    Route{"GET", "/v1/sessions/{id}/runs", "List the session's runs.", "", PageOf("Run"), ListRuns},
    Route{"GET", "/v1/runs/{id}", "Show a run.", "", One("Run"), GetRun},
    Route{"POST", "/v1/runs/{id}/cancel", "Cancel a run: 202 while its worker ends it.", "",
          One("Run"), CancelRun},
};

}  // namespace

Resource SessionResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
