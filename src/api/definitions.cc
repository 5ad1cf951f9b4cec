// Agents and providers: named definitions with revisions, by the same rules for every kind.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "agent/definition.h"
#include "api/router.h"
#include "model/definition.h"

namespace caisson::api {
namespace {

using store::DefinitionKind;
using store::DefinitionRow;

// "1"–100 of letters, digits, '-', '_', '.': safe in a URL, a file name and a log line.
Result<void> CheckName(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
  if (!name.empty() && name.size() <= 100 && name[0] != '.' &&
      name.find_first_not_of(kAllowed) == std::string_view::npos) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              "\"name\" must be 1 to 100 letters, digits, '-', '_' or '.', and not begin with '.'");
}

Result<void> CheckDefinition(DefinitionKind kind, const json::object& definition) {
  switch (kind) {
    case DefinitionKind::kAgent:
      CAISSON_TRY(agent::ParseAgent(definition));
      return {};
    case DefinitionKind::kProvider:
      CAISSON_TRY(model::ParseProvider(definition));
      return {};
    case DefinitionKind::kSandboxProfile:
      break;
  }
  return Fail(ErrorCode::kNotSupported, "this kind of definition cannot be stored yet");
}

json::object ToJson(const DefinitionRow& row) {
  json::object body;
  body["name"] = row.name;
  body["revision"] = row.revision;
  body["digest"] = row.digest;
  body["created_at"] = FormatTime(row.created_at);
  body["updated_at"] = FormatTime(row.updated_at);
  body["definition"] = json::ParseObject(row.json).value_or(json::object());
  return body;
}

Reply Answer(int status, const DefinitionRow& row) {
  Reply reply = Reply::Json(status, ToJson(row));
  reply.headers.Add("ETag", fmt::format("\"{}\"", row.revision));
  return reply;
}

// If-Match: "N" of an earlier answer's ETag. Nothing when it is absent.
Result<std::optional<uint64_t>> ReadIfMatch(Context& context) {
  auto text = context.request.head().headers.Find("if-match");
  if (!text.has_value()) return std::nullopt;
  uint64_t revision = 0;
  std::string_view digits = *text;
  bool quoted = digits.size() > 2 && digits.starts_with('"') && digits.ends_with('"');
  if (quoted) digits = digits.substr(1, digits.size() - 2);
  auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), revision);
  if (!quoted || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                "If-Match must be an ETag of an earlier answer, \"N\"");
  }
  return revision;
}

Task<Result<Reply>> Store(Context& context, DefinitionKind kind, std::string name,
                          json::object definition, uint64_t expected, int status) {
  CAISSON_CO_TRY(CheckName(name));
  CAISSON_CO_TRY(CheckDefinition(kind, definition));
  std::string text = json::SerializeCanonical(std::move(definition));
  CAISSON_CO_ASSIGN(DefinitionRow row,
                    co_await context.services.store.PutDefinition(
                        context.scope, kind, std::move(name), std::move(text), expected));
  co_return Answer(status, row);
}

template <DefinitionKind kKind>
Task<Result<Reply>> Create(Context& context) {
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  const json::value* name = body.if_contains("name");
  if (name == nullptr || !name->is_string()) {
    co_return Fail(ErrorCode::kInvalidArgument, "\"name\" is required and must be a string");
  }
  std::string text(name->get_string());
  body.erase("name");
  auto reply = co_await Store(context, kKind, text, std::move(body), 0, 201);
  if (!reply && reply.error().code == ErrorCode::kPreconditionFailed) {
    co_return Fail(ErrorCode::kAlreadyExists,
                   fmt::format("{} \"{}\" exists already; replace it with PUT and If-Match",
                               store::NameOf(kKind), text));
  }
  co_return reply;
}

template <DefinitionKind kKind>
Task<Result<Reply>> Put(Context& context) {
  CAISSON_CO_ASSIGN(std::optional<uint64_t> revision, ReadIfMatch(context));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  co_return co_await Store(context, kKind, context.Param("name"), std::move(body),
                           revision.value_or(0), revision.value_or(0) == 0 ? 201 : 200);
}

template <DefinitionKind kKind>
Task<Result<Reply>> Get(Context& context) {
  CAISSON_CO_ASSIGN(DefinitionRow row, co_await context.services.store.GetDefinition(
                                           context.scope, kKind, context.Param("name")));
  co_return Answer(200, row);
}

template <DefinitionKind kKind>
Task<Result<Reply>> List(Context& context) {
  CAISSON_CO_ASSIGN(store::PageRequest page, ReadPage(context));
  CAISSON_CO_ASSIGN(auto rows, co_await context.services.store.ListDefinitions(context.scope, kKind,
                                                                               std::move(page)));
  json::array items;
  for (const DefinitionRow& row : rows.rows) items.push_back(ToJson(row));
  co_return Reply::Json(200, {{"items", std::move(items)}, {"next_cursor", rows.next_cursor}});
}

template <DefinitionKind kKind>
Task<Result<Reply>> Delete(Context& context) {
  CAISSON_CO_ASSIGN(std::optional<uint64_t> revision, ReadIfMatch(context));
  if (!revision.has_value()) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "deleting needs If-Match with the ETag of what is to be deleted");
  }
  CAISSON_CO_TRY(co_await context.services.store.DeleteDefinition(
      context.scope, kKind, context.Param("name"), *revision));
  co_return Reply::NoContent();
}

constexpr std::string_view kAgentSchema = R"({"type":"object","required":["provider"],"properties":{
"name":{"type":"string"},"description":{"type":"string"},"system_prompt":{"type":"string"},
"provider":{"type":"string"},"model":{"type":"string"},"temperature":{"type":"number"},
"max_tokens":{"type":"integer"},"max_steps":{"type":"integer"},"timeout_ms":{"type":"integer"},
"sandbox_profile":{"type":"string"},"excluded_tools":{"type":"array","items":{"type":"string"}},
"blocked_tools":{"type":"array","items":{"type":"string"}},"tools":{"type":"array"},
"skills":{"type":"array"},"memory":{"type":"array"},"subagents":{"type":"array"},
"middleware":{"type":"array"},"permissions":{"type":"array"},"interrupt_on":{"type":"object"},
"mcp":{"type":"object"},"context_policy":{"type":"object"},"response_format":{"type":"object"}}})";

constexpr std::string_view kProviderSchema =
    R"({"type":"object","required":["protocol"],"properties":{
"name":{"type":"string"},"description":{"type":"string"},
"protocol":{"enum":["openai","anthropic"]},"base_url":{"type":"string"},"model":{"type":"string"},
"api_key_env":{"type":"string"},"timeout_ms":{"type":"integer"},"max_retries":{"type":"integer"}}})";

// What is sent is what is stored, without the name.
constexpr std::string_view kAgentBody = R"({"$ref":"#/components/schemas/AgentDefinition"})";
constexpr std::string_view kProviderBody = R"({"$ref":"#/components/schemas/ProviderDefinition"})";

constexpr auto kAgent = DefinitionKind::kAgent;
constexpr auto kProvider = DefinitionKind::kProvider;

constexpr std::array kSchemas{
    Schema{"Agent",
           "name:string revision:int digest:string created_at:time updated_at:time "
           "definition:AgentDefinition"},
    Schema{"Provider",
           "name:string revision:int digest:string created_at:time updated_at:time "
           "definition:ProviderDefinition"},
    Schema{"AgentDefinition", kAgentSchema},
    Schema{"ProviderDefinition", kProviderSchema},
};

constexpr std::array kRoutes{
    Route{"POST", "/v1/agents", "Create an agent.", kAgentBody, One("Agent"), Create<kAgent>},
    Route{"GET", "/v1/agents", "List agents.", "", PageOf("Agent"), List<kAgent>},
    Route{"GET", "/v1/agents/{name}", "Show an agent.", "", One("Agent"), Get<kAgent>},
    Route{"PUT", "/v1/agents/{name}", "Create an agent, or replace the revision in If-Match.",
          kAgentBody, One("Agent"), Put<kAgent>},
    Route{"DELETE", "/v1/agents/{name}", "Delete the revision in If-Match.", "", kNoBody,
          Delete<kAgent>},
    Route{"POST", "/v1/providers", "Create a model provider.", kProviderBody, One("Provider"),
          Create<kProvider>},
    Route{"GET", "/v1/providers", "List model providers.", "", PageOf("Provider"), List<kProvider>},
    Route{"GET", "/v1/providers/{name}", "Show a model provider.", "", One("Provider"),
          Get<kProvider>},
    Route{"PUT", "/v1/providers/{name}", "Create a provider, or replace the revision in If-Match.",
          kProviderBody, One("Provider"), Put<kProvider>},
    Route{"DELETE", "/v1/providers/{name}", "Delete the revision in If-Match.", "", kNoBody,
          Delete<kProvider>},
};

}  // namespace

Resource DefinitionResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
