// Sandboxes: create, list, show, delete, and commands in them.
#include <fmt/format.h>

#include <array>
#include <charconv>

#include "api/resources.h"
#include "api/router.h"
#include "guest/text.h"
#include "json/reader.h"

namespace caisson::api {
namespace {

using sandbox::ExecStream;

constexpr Millis kCreateTime{30'000};
constexpr Millis kDeleteTime{20'000};
constexpr uint64_t kInlineBytes = 64 * 1024;
constexpr uint64_t kMaxInlineBytes = 4 << 20;

Result<sandbox::Manager*> Sandboxes(Context& context) {
  if (context.services.sandboxes != nullptr) return context.services.sandboxes;
  return Fail(ErrorCode::kNoBackend,
              "this host cannot make sandboxes; `caisson doctor` says what is missing");
}

Until Within(Context& context, Millis time) {
  return {Deadline::After(context.services.clock, time), context.request.stop()};
}

Result<sandbox::SandboxSpec> ReadSpec(json::ObjectReader& reader) {
  CAISSON_ASSIGN(sandbox::SandboxSpec spec,
                 sandbox::BuiltInProfile(reader.String("profile").value_or("default")));
  if (const json::object* object = reader.Object("resources")) {
    json::ObjectReader resources(*object, "resources");
    spec.resources.cpus = resources.Number("cpus", 0.01, 1024).value_or(spec.resources.cpus);
    auto bytes = [&](std::string_view name, uint64_t& into) {
      if (auto number = resources.Int(name, 1 << 20, 1ll << 44))
        into = static_cast<uint64_t>(*number);
    };
    bytes("memory_bytes", spec.resources.memory_bytes);
    bytes("disk_bytes", spec.resources.disk_bytes);
    if (auto pids = resources.Int("pids", 2, 1 << 20)) {
      spec.resources.pids = static_cast<uint32_t>(*pids);
    }
    CAISSON_TRY(resources.Finish(json::ObjectReader::Unknown::kRefuse));
  }
  if (auto ttl = reader.Int("ttl_ms", 1'000, 30ll * 24 * 3'600'000)) {
    spec.lifetimes.ttl = Millis(*ttl);
  }
  if (auto network = reader.String("network")) {
    CAISSON_ASSIGN(spec.network, sandbox::ParseNetworkMode(*network));
  }
  if (const json::object* env = reader.Object("env")) {
    for (const auto& [name, value] : *env) {
      if (!value.is_string()) reader.Wrong("env", "must hold strings only");
      if (value.is_string()) spec.env[std::string(name)] = value.get_string();
    }
  }
  return spec;
}

Task<Result<Reply>> Create(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  CAISSON_CO_ASSIGN(sandbox::SandboxSpec spec, ReadSpec(reader));
  auto session = reader.String("session_id");
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  store::SandboxRow row;
  if (session.has_value()) {
    CAISSON_CO_ASSIGN(SessionId id, SessionId::Parse(*session));
    CAISSON_CO_ASSIGN(row,
                      co_await sandboxes->ForSession(context.scope, std::move(id), std::move(spec),
                                                     Within(context, kCreateTime)));
  } else {
    store::Idempotency key = ReadIdempotency(context, json::SerializeCanonical(std::move(body)));
    CAISSON_CO_ASSIGN(
        row, co_await sandboxes->Create(context.scope, {{}, std::move(spec), true}, std::move(key),
                                        Within(context, kCreateTime)));
  }
  co_return Reply::Json(201, ToJson(row));
}

Task<Result<Reply>> List(Context& context) {
  CAISSON_CO_ASSIGN(store::PageRequest page, ReadPage(context));
  CAISSON_CO_ASSIGN(auto rows,
                    co_await context.services.store.ListSandboxes(context.scope, std::move(page)));
  json::array items;
  for (const auto& row : rows.rows) items.push_back(ToJson(row));
  co_return Reply::Json(200, {{"items", std::move(items)}, {"next_cursor", rows.next_cursor}});
}

Task<Result<Reply>> Show(Context& context) {
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(store::SandboxRow row,
                    co_await context.services.store.GetSandbox(context.scope, std::move(id)));
  co_return Reply::Json(200, ToJson(row));
}

Task<Result<Reply>> Delete(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  std::optional<uint64_t> generation;
  if (context.request.Query("generation").has_value()) {
    CAISSON_CO_ASSIGN(generation, ReadNumber(context, "generation", 0));
  }
  CAISSON_CO_ASSIGN(store::SandboxRow row,
                    co_await sandboxes->Delete(context.scope, std::move(id), generation,
                                               Within(context, kDeleteTime)));
  co_return Reply::Json(200, ToJson(row));
}

struct ExecBody {
  sandbox::ExecRequest request;
  std::string stdin_bytes;
};

Result<ExecBody> ReadExec(const json::object& body) {
  json::ObjectReader reader(body);
  ExecBody exec;
  exec.request.command = reader.String("command");
  exec.request.argv = reader.Strings("argv");
  if (exec.request.command.has_value() == !exec.request.argv.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "exactly one of \"command\" and \"argv\" is required");
  }
  exec.request.cwd = reader.String("cwd").value_or("");
  if (const json::object* env = reader.Object("env")) {
    for (const auto& [name, value] : *env) {
      if (!value.is_string()) reader.Wrong("env", "must hold strings only");
      if (value.is_string()) exec.request.env[std::string(name)] = value.get_string();
    }
  }
  if (auto timeout = reader.Int("timeout_ms", 1, 24ll * 3'600'000))
    exec.request.timeout = Millis(*timeout);
  if (auto text = reader.String("stdin")) {
    exec.request.stdin_pipe = true;
    exec.stdin_bytes = std::move(*text);
  }
  auto limit = reader.Int("output_limit_bytes", 1024, kMaxInlineBytes);
  if (limit.has_value()) exec.request.head_bytes = static_cast<uint64_t>(*limit);
  CAISSON_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  return exec;
}

json::object ToJson(const sandbox::ExecExit& exit) {
  json::object object{
      {"code", nullptr},
      {"signal", nullptr},
      {"reason", NameOf(exit.reason)},
      {"duration_ms", exit.duration.count()},
      {"cpu_ms", exit.cpu.count()},
      {"max_rss_bytes", exit.max_rss_bytes},
      {"stdout_bytes", exit.stdout_bytes},
      {"stderr_bytes", exit.stderr_bytes},
      {"truncated", {{"stdout", exit.stdout_truncated}, {"stderr", exit.stderr_truncated}}},
      {"still_running", exit.still_running}};
  if (exit.code.has_value()) object["code"] = *exit.code;
  if (!exit.signal.empty()) object["signal"] = exit.signal;
  return object;
}

// Text where the bytes are UTF-8, and base64 beside it where they are not: nothing is lost.
void AddBytes(json::object& into, std::string_view name, const std::string& bytes) {
  into[name] = guest::ReplaceBadUtf8(bytes);
  if (!guest::IsValidUtf8(bytes)) into[fmt::format("{}_base64", name)] = guest::Base64Encode(bytes);
}

// Keeps back the start of a sequence that the next piece completes, so that text is never broken at
// the border of two pieces.
class TextPieces {
 public:
  std::string Take(std::string piece) {
    piece.insert(0, rest_);
    rest_.clear();
    for (size_t back = 1; back <= 3 && back <= piece.size(); back++) {
      auto byte = static_cast<unsigned char>(piece[piece.size() - back]);
      if ((byte & 0xc0) == 0x80) continue;
      size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      if (length > back) {
        rest_ = piece.substr(piece.size() - back);
        piece.resize(piece.size() - back);
      }
      break;
    }
    return piece;
  }
  std::string Rest() { return std::exchange(rest_, {}); }

 private:
  std::string rest_;
};

std::string Sse(std::string_view event, const json::object& data) {
  return fmt::format("event: {}\ndata: {}\n\n", event, json::Serialize(data));
}

// Reads the records of one exec and hands their bytes on.
class ExecReader {
 public:
  ExecReader(Context& context, ExecStream& stream) : context_(context), stream_(stream) {}

  // The next record; nothing at the end. Waits as long as the guest shows signs of life.
  Task<Result<std::optional<ExecStream::Record>>> Next() {
    return stream_.Next(Within(context_, Millis(6 * guest::kKeepAliveMs)));
  }

 private:
  Context& context_;
  ExecStream& stream_;
};

// Writes stdin beside the reading of output: a command that answers before it has read everything
// would block for ever otherwise.
class StdinWriter {
 public:
  StdinWriter(std::shared_ptr<sandbox::GuestClient> guest, std::string bytes, Until until)
      : guest_(std::move(guest)), bytes_(std::move(bytes)), until_(std::move(until)) {}
  void Start(std::string exec_id) { group_.Start(Write(std::move(exec_id))); }
  Task<void> Join() {
    stop_.request_stop();
    co_await group_.Join();
  }

 private:
  Task<void> Write(std::string exec_id) {
    Until until(until_.deadline, stop_.get_token());
    // A command that does not read its input is no error.
    (void)co_await guest_->WriteStdin(std::move(exec_id), std::move(bytes_), true, until);
  }
  std::shared_ptr<sandbox::GuestClient> guest_;
  std::string bytes_;
  Until until_;
  std::stop_source stop_;
  net::TaskGroup group_;
};

Task<Result<Reply>> ExecWhole(Context& context, ExecStream& stream, StdinWriter* in) {
  ExecReader reader(context, stream);
  json::object body;
  std::string out;
  std::string err;
  for (;;) {
    CAISSON_CO_ASSIGN(auto record, co_await reader.Next());
    if (!record.has_value()) break;
    if (record->type == guest::RecordType::kStarted && in != nullptr) in->Start(stream.id());
    if (record->type == guest::RecordType::kStdout) out += record->payload;
    if (record->type == guest::RecordType::kStderr) err += record->payload;
    if (record->type == guest::RecordType::kExit) {
      CAISSON_CO_ASSIGN(sandbox::ExecExit exit, ExecStream::ParseExit(record->payload));
      body = ToJson(exit);
    }
  }
  body["id"] = stream.id();
  AddBytes(body, "stdout", out);
  AddBytes(body, "stderr", err);
  co_return Reply::Json(200, body);
}

Task<Result<Reply>> ExecStreamed(Context& context, ExecStream& stream, StdinWriter* in) {
  ExecReader reader(context, stream);
  CAISSON_CO_TRY(co_await context.response.Start(200, {{"Content-Type", "text/event-stream"},
                                                       {"Cache-Control", "no-cache, no-transform"},
                                                       {"X-Accel-Buffering", "no"},
                                                       {"X-Request-Id", context.request_id}}));
  TextPieces pieces[2];
  constexpr std::string_view kNames[] = {"stdout", "stderr"};
  auto send = [&](size_t which, std::string bytes, uint64_t offset) -> Task<Result<void>> {
    if (bytes.empty()) co_return Result<void>();
    json::object data{{"offset", offset}};
    AddBytes(data, "data", bytes);
    co_return co_await context.response.Write(Sse(kNames[which], data));
  };
  for (;;) {
    CAISSON_CO_ASSIGN(auto record, co_await reader.Next());
    if (!record.has_value()) break;
    switch (record->type) {
      case guest::RecordType::kStarted:
        CAISSON_CO_TRY(co_await context.response.Write(Sse("started", {{"id", stream.id()}})));
        if (in != nullptr) in->Start(stream.id());
        break;
      case guest::RecordType::kStdout:
      case guest::RecordType::kStderr: {
        size_t which = record->type == guest::RecordType::kStdout ? 0 : 1;
        CAISSON_CO_TRY(
            co_await send(which, pieces[which].Take(std::move(record->payload)), record->offset));
        break;
      }
      case guest::RecordType::kGap:
        CAISSON_CO_TRY(
            co_await context.response.Write("event: gap\ndata: " + record->payload + "\n\n"));
        break;
      case guest::RecordType::kExit: {
        for (size_t which : {0u, 1u}) {
          CAISSON_CO_TRY(co_await send(which, pieces[which].Rest(), record->offset));
        }
        CAISSON_CO_ASSIGN(sandbox::ExecExit exit, ExecStream::ParseExit(record->payload));
        CAISSON_CO_TRY(co_await context.response.Write(Sse("exit", ToJson(exit))));
        break;
      }
      default:
        break;
    }
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

Task<Result<Reply>> Exec(Context& context) {
  CAISSON_CO_ASSIGN(sandbox::Manager * sandboxes, Sandboxes(context));
  CAISSON_CO_ASSIGN(SandboxId id, SandboxId::Parse(context.Param("id")));
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  CAISSON_CO_ASSIGN(ExecBody exec, ReadExec(body));
  auto accept = context.request.head().headers.Find("accept");
  bool streamed = accept.has_value() && accept->find("text/event-stream") != std::string_view::npos;
  if (!streamed && !exec.request.head_bytes.has_value()) exec.request.head_bytes = kInlineBytes;
  // The command is the request's: a client that leaves, or a server that stops, ends it.
  context.request.StopWhenClientLeaves();
  exec.request.on_disconnect = sandbox::DisconnectAction::kKill;
  bool has_stdin = exec.request.stdin_pipe;
  CAISSON_CO_ASSIGN(auto guest, co_await sandboxes->Open(context.scope, std::move(id),
                                                         Within(context, kCreateTime)));
  CAISSON_CO_ASSIGN(ExecStream stream, co_await guest->StartExec(std::move(exec.request),
                                                                 Within(context, kCreateTime)));
  StdinWriter in(guest, std::move(exec.stdin_bytes), Until(Deadline::Never()));
  StdinWriter* writer = has_stdin ? &in : nullptr;
  auto reply = streamed ? co_await ExecStreamed(context, stream, writer)
                        : co_await ExecWhole(context, stream, writer);
  co_await in.Join();
  co_return reply;
}

constexpr std::string_view kCreateSchema =
    R"({"type":"object","properties":{"profile":{"type":"string"},
"session_id":{"type":"string"},"network":{"enum":["closed","allow_list","named","unrestricted"]},
"ttl_ms":{"type":"integer"},"env":{"type":"object"},"resources":{"type":"object","properties":{
"cpus":{"type":"number"},"memory_bytes":{"type":"integer"},"pids":{"type":"integer"},
"disk_bytes":{"type":"integer"}}}}})";
constexpr std::string_view kExecSchema =
    R"({"type":"object","properties":{"command":{"type":"string"},
"argv":{"type":"array","items":{"type":"string"}},"cwd":{"type":"string"},"env":{"type":"object"},
"stdin":{"type":"string"},"timeout_ms":{"type":"integer"},"output_limit_bytes":{"type":"integer"}}})";

constexpr std::array kSchemas{
    Schema{"Sandbox",
           "id:string backend:string profile:string status:SandboxStatus generation:int "
           "created_at:time updated_at:time expires_at:time session_id?:string "
           "status_reason?:string spec:SandboxSpec"},
    Schema{"SandboxSpec",
           "backend:string profile:string work_dir:string network:string ttl_ms:int "
           "resources:SandboxResources"},
    Schema{"SandboxResources", "cpus:number memory_bytes:int pids:int disk_bytes:int"},
    Schema{"ExecResult",
           "id:string code:int|null signal:string|null reason:ExitReason duration_ms:int "
           "cpu_ms:int max_rss_bytes:int stdout_bytes:int stderr_bytes:int truncated:ExecTruncated "
           "still_running:int stdout:string stdout_base64?:string stderr:string "
           "stderr_base64?:string"},
    Schema{"ExecTruncated", "stdout:bool stderr:bool"},
};

constexpr std::array kRoutes{
    Route{"POST", "/v1/sandboxes", "Create a sandbox; with session_id the session's, made once.",
          kCreateSchema, One("Sandbox"), Create},
    Route{"GET", "/v1/sandboxes", "List sandboxes, also those that are gone.", "",
          PageOf("Sandbox"), List},
    Route{"GET", "/v1/sandboxes/{id}", "Show a sandbox.", "", One("Sandbox"), Show},
    Route{"DELETE", "/v1/sandboxes/{id}", "End a sandbox; the answer is the receipt.", "",
          One("Sandbox"), Delete},
    Route{"POST", "/v1/sandboxes/{id}/exec",
          "Run a command: its result, or with Accept: text/event-stream its output as it comes.",
          kExecSchema, One("ExecResult"), Exec},
};

}  // namespace

Resource SandboxResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
