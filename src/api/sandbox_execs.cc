// Commands in a sandbox: run one and wait for it, or start one that lives on beside its caller.
#include <fmt/format.h>

#include <array>

#include "api/guest_calls.h"
#include "api/router.h"
#include "guest/protocol.h"
#include "guest/text.h"
#include "json/reader.h"
#include "net/task_group.h"

namespace caisson::api {
namespace {

using sandbox::ExecStream;

constexpr uint64_t kInlineBytes = 64 * 1024;
constexpr uint64_t kMaxInlineBytes = 4 << 20;

struct ExecBody {
  sandbox::ExecRequest request;
  std::optional<std::string> text_in;  // all of its input
};

// The fields of both kinds of exec; the caller reads its own and finishes.
Result<ExecBody> ReadExec(json::ObjectReader& reader) {
  ExecBody exec;
  exec.request.command = reader.String("command");
  exec.request.argv = reader.Strings("argv");
  if (exec.request.command.has_value() == !exec.request.argv.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "exactly one of \"command\" and \"argv\" is required");
  }
  exec.request.cwd = reader.String("cwd").value_or("");
  exec.request.umask = reader.String("umask").value_or("");
  exec.request.login = reader.Bool("login").value_or(false);
  if (const json::object* env = reader.Object("env")) {
    for (const auto& [name, value] : *env) {
      if (!value.is_string()) reader.Wrong("env", "must hold strings only");
      if (value.is_string()) exec.request.env[std::string(name)] = value.get_string();
    }
  }
  if (auto timeout = reader.Int("timeout_ms", 1, 24ll * 3'600'000))
    exec.request.timeout = Millis(*timeout);
  if (auto keep = reader.Int("keep_bytes", 0, guest::kMaxKeptBytes)) {
    exec.request.keep_bytes = static_cast<uint64_t>(*keep);
  }
  exec.text_in = reader.String("stdin");
  exec.request.stdin_pipe = exec.text_in.has_value();
  if (const json::object* object = reader.Object("pty")) {
    json::ObjectReader pty(*object, "pty");
    exec.request.pty =
        sandbox::PtySize{static_cast<uint16_t>(pty.Int("rows", 1, 9999).value_or(24)),
                         static_cast<uint16_t>(pty.Int("cols", 1, 9999).value_or(80))};
    CAISSON_TRY(pty.Finish(json::ObjectReader::Unknown::kRefuse));
  }
  auto limit = reader.Int("output_limit_bytes", 1024, kMaxInlineBytes);
  if (limit.has_value()) exec.request.head_bytes = static_cast<uint64_t>(*limit);
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
  if (exit.kept.has_value()) {
    object["kept"] =
        json::object{{"stdout", exit.kept->stdout_bytes}, {"stderr", exit.kept->stderr_bytes}};
  }
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
    return stream_.Next(WhileGuestLives(context_));
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
  CAISSON_CO_TRY(co_await StartEvents(context));
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
      case guest::RecordType::kKeepAlive:
        CAISSON_CO_TRY(co_await context.response.Write(": keep-alive\n\n"));
        break;
      default:
        break;
    }
  }
  CAISSON_CO_TRY(co_await context.response.Finish());
  co_return Reply::Answered();
}

bool WantsStream(Context& context) {
  auto accept = context.request.head().headers.Find("accept");
  return accept.has_value() && accept->find("text/event-stream") != std::string_view::npos;
}

Task<Result<Reply>> Exec(Context& context) {
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  CAISSON_CO_ASSIGN(ExecBody exec, ReadExec(reader));
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  bool streamed = WantsStream(context);
  if (!streamed && !exec.request.head_bytes.has_value()) exec.request.head_bytes = kInlineBytes;
  // The command is the request's: a client that leaves, or a server that stops, ends it.
  context.request.StopWhenClientLeaves();
  exec.request.on_disconnect = sandbox::DisconnectAction::kKill;
  CAISSON_CO_ASSIGN(auto guest, co_await OpenGuest(context));
  CAISSON_CO_ASSIGN(ExecStream stream, co_await guest->StartExec(std::move(exec.request),
                                                                 Within(context, kGuestCallTime)));
  bool has_input = exec.text_in.has_value();
  StdinWriter in(guest, std::move(exec.text_in).value_or(""), Until(Deadline::Never()));
  StdinWriter* writer = has_input ? &in : nullptr;
  auto reply = streamed ? co_await ExecStreamed(context, stream, writer)
                        : co_await ExecWhole(context, stream, writer);
  co_await in.Join();
  co_return reply;
}

// --- Execs that live beside their callers -------------------------------------------------------

// The guest's path of the exec that the request names.
std::string ExecPath(Context& context, std::string_view rest = {}) {
  return fmt::format("{}/{}{}", guest::kPathExecs, http::EncodeQueryValue(context.Param("exec")),
                     rest);
}

Task<Result<Reply>> Start(Context& context) {
  CAISSON_CO_ASSIGN(json::object body, co_await ReadJson(context));
  json::ObjectReader reader(body);
  CAISSON_CO_ASSIGN(ExecBody exec, ReadExec(reader));
  exec.request.id = reader.String("id").value_or("");
  exec.request.stdin_pipe = reader.Bool("interactive").value_or(false);
  CAISSON_CO_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  if (exec.text_in.has_value()) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "\"stdin\" is for /exec; start with \"interactive\" and write to /stdin");
  }
  // Nobody owns it: it ends by itself, by its timeout, by a call, or with the sandbox.
  exec.request.on_disconnect = sandbox::DisconnectAction::kContinue;
  CAISSON_CO_ASSIGN(auto guest, co_await OpenGuest(context));
  Until until = Within(context, kGuestCallTime);
  if (WantsStream(context)) {
    // Its follower alone: the command goes on.
    context.request.StopWhenClientLeaves();
    CAISSON_CO_ASSIGN(ExecStream stream, co_await guest->StartExec(std::move(exec.request), until));
    co_return co_await ExecStreamed(context, stream, nullptr);
  }
  CAISSON_CO_ASSIGN(std::string started,
                    co_await guest->StartInBackground(std::move(exec.request), until));
  co_return Reply{201, {{"Content-Type", "application/json"}}, std::move(started), false};
}

Task<Result<Reply>> ListExecs(Context& context) {
  return PassJson(context, "GET", std::string(guest::kPathExecs), {});
}
Task<Result<Reply>> ShowExec(Context& context) {
  return PassJson(context, "GET", ExecPath(context), {});
}
Task<Result<Reply>> DeleteExec(Context& context) {
  return PassJson(context, "DELETE", ExecPath(context), {});
}
Task<Result<Reply>> SignalExec(Context& context) {
  return PassJson(context, "POST", ExecPath(context, "/signal"), {});
}
Task<Result<Reply>> ResizeExec(Context& context) {
  return PassJson(context, "POST", ExecPath(context, "/resize"), {});
}

constexpr std::array<std::string_view, 3> kOutputParameters{"stream", "offset", "limit"};
Task<Result<Reply>> ReadOutput(Context& context) {
  return PassContent(context, "GET", ExecPath(context, "/output"), kOutputParameters);
}

constexpr std::array<std::string_view, 1> kStdinParameters{"eof"};
Task<Result<Reply>> WriteExec(Context& context) {
  return PassUpload(context, "POST", ExecPath(context, "/stdin"), kStdinParameters);
}

Task<Result<Reply>> FollowExec(Context& context) {
  CAISSON_CO_ASSIGN(uint64_t after, ReadNumber(context, "after", 0));
  context.request.StopWhenClientLeaves();
  CAISSON_CO_ASSIGN(auto guest, co_await OpenGuest(context));
  CAISSON_CO_ASSIGN(ExecStream stream, co_await guest->AttachExec(context.Param("exec"), after,
                                                                  Within(context, kGuestCallTime)));
  co_return co_await ExecStreamed(context, stream, nullptr);
}

#define EXEC_PROPERTIES                                                               \
  R"("command":{"type":"string"},"argv":{"type":"array","items":{"type":"string"}},)" \
  R"("cwd":{"type":"string"},"env":{"type":"object"},"umask":{"type":"string"},)"     \
  R"("login":{"type":"boolean"},"timeout_ms":{"type":"integer"},)"                    \
  R"("output_limit_bytes":{"type":"integer"},"keep_bytes":{"type":"integer"},)"       \
  R"("pty":{"type":"object","properties":{"rows":{"type":"integer"},"cols":{"type":"integer"}}})"
constexpr std::string_view kExecSchema =
    R"({"type":"object","properties":{"stdin":{"type":"string"},)" EXEC_PROPERTIES "}}";
constexpr std::string_view kStartSchema =
    R"({"type":"object","properties":{"id":{"type":"string"},"interactive":{"type":"boolean"},)" EXEC_PROPERTIES
    "}}";
#undef EXEC_PROPERTIES
constexpr std::string_view kSignalSchema =
    R"({"type":"object","properties":{"signal":{"type":"string"},"scope":{"enum":["tree","leader"]}},
"required":["signal"]})";
constexpr std::string_view kResizeSchema =
    R"({"type":"object","properties":{"rows":{"type":"integer"},"cols":{"type":"integer"}},
"required":["rows","cols"]})";

constexpr std::array kSchemas{
    Schema{"ExecResult",
           "id:string code:int|null signal:string|null reason:ExitReason duration_ms:int "
           "cpu_ms:int max_rss_bytes:int stdout_bytes:int stderr_bytes:int truncated:ExecTruncated "
           "still_running:int kept?:ExecKept stdout:string stdout_base64?:string stderr:string "
           "stderr_base64?:string"},
    Schema{"ExecTruncated", "stdout:bool stderr:bool"},
    Schema{"ExecKept", "stdout:int stderr:int"},
    Schema{"Exec",
           "id:string state:running|ended pid:int started_at_ms:int offset:int "
           "first_kept_offset:int exit:ExecExit|null"},
    Schema{"ExecExit",
           "code:int|null signal:string|null reason:ExitReason duration_ms:int cpu_ms:int "
           "max_rss_bytes:int stdout_bytes:int stderr_bytes:int truncated:ExecTruncated "
           "still_running:int kept?:ExecKept"},
    Schema{"ExecList", "execs:[Exec]"},
    Schema{"ExecInput", "accepted_bytes:int"},
    Schema{"Done", R"({"type":"object"})"},
};

constexpr std::string_view kOne = "/v1/sandboxes/{id}/execs/{exec}";
constexpr std::array kRoutes{
    Route{"POST", "/v1/sandboxes/{id}/exec",
          "Run a command: its result, or with Accept: text/event-stream its output as it comes.",
          kExecSchema, One("ExecResult"), Exec},
    Route{"POST", "/v1/sandboxes/{id}/execs",
          "Start a command that outlives this request; with Accept: text/event-stream, followed.",
          kStartSchema, One("Exec"), Start},
    Route{"GET", "/v1/sandboxes/{id}/execs", "List commands, ended ones too.", "", One("ExecList"),
          ListExecs},
    Route{"GET", kOne, "Show a command.", "", One("Exec"), ShowExec},
    Route{"DELETE", kOne, "End a command with all it started, and forget it.", "", One("Done"),
          DeleteExec},
    Route{"GET", "/v1/sandboxes/{id}/execs/{exec}/stream",
          "Follow a command's output from the byte `after` on, as Server-Sent Events.", "",
          Success{"text/event-stream", ""}, FollowExec},
    Route{"GET", "/v1/sandboxes/{id}/execs/{exec}/output",
          "Read what keep_bytes kept of a command's output, from the byte `offset` on.", "", kBytes,
          ReadOutput},
    Route{"POST", "/v1/sandboxes/{id}/execs/{exec}/stdin",
          "Write the request's body to its input; `eof=1` closes it behind.", "", One("ExecInput"),
          WriteExec},
    Route{"POST", "/v1/sandboxes/{id}/execs/{exec}/signal", "Send a signal to a command.",
          kSignalSchema, One("Done"), SignalExec},
    Route{"POST", "/v1/sandboxes/{id}/execs/{exec}/resize", "Resize a command's terminal.",
          kResizeSchema, One("Done"), ResizeExec},
};

}  // namespace

Resource SandboxExecResource() { return {kRoutes, kSchemas}; }

}  // namespace caisson::api
