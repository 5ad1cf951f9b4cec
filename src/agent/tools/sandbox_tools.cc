#include "agent/tools/sandbox_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "guest/text.h"
#include "http/message.h"
#include "json/reader.h"

namespace caisson::agent {
namespace {

constexpr Millis kFileTime{30'000};
constexpr int64_t kReadLines = 100;
constexpr size_t kLongLine = 5000;
constexpr size_t kMaxFileText = 512 * 1024;

struct SpecText {
  const char* name;
  const char* description;
  const char* parameters;
};
constexpr SpecText kSpecs[] = {
    {"execute",
     "Run a shell command in the sandbox and return its output and exit code. The sandbox keeps "
     "its "
     "files between commands; it has no network. Commands run in the working directory without a "
     "terminal.",
     R"json({"type":"object","required":["command"],"properties":{
"command":{"type":"string","description":"shell text, run by /bin/sh -c"},
"timeout":{"type":"integer","description":"seconds until it is killed (default 120, at most 3600)"}}})json"},
    {"ls", "List a directory of the sandbox, one path a line; directories end in a slash.",
     R"json({"type":"object","required":["path"],"properties":{"path":{"type":"string"}}})json"},
    {"read_file",
     "Read lines of a text file. Lines are numbered from 1; use offset and limit for more.",
     R"json({"type":"object","required":["file_path"],"properties":{"file_path":{"type":"string"},
"offset":{"type":"integer","description":"lines to skip (default 0)"},
"limit":{"type":"integer","description":"lines to read (default 100)"}}})json"},
    {"write_file", "Write a text file, making its directories; replaces what is there.",
     R"json({"type":"object","required":["file_path","content"],"properties":{
"file_path":{"type":"string"},"content":{"type":"string"}}})json"},
    {"edit_file",
     "Replace a text in a file, exactly as it stands there. It must occur once, unless replace_all "
     "is true.",
     R"json({"type":"object","required":["file_path","old_string","new_string"],"properties":{
"file_path":{"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"},
"replace_all":{"type":"boolean"}}})json"},
    {"glob", "Find files by a pattern such as *.py or src/**/*.h, below path.",
     R"json({"type":"object","required":["pattern"],"properties":{"pattern":{"type":"string"},
"path":{"type":"string"}}})json"},
    {"grep", "Find lines that contain a text (not a regular expression) in the files below path.",
     R"json({"type":"object","required":["pattern"],"properties":{"pattern":{"type":"string"},
"path":{"type":"string"},"glob":{"type":"string","description":"only in files whose name matches"},
"output_mode":{"enum":["files_with_matches","content","count"]},
"max_count":{"type":"integer"}}})json"},
};

// Errors that say something about the call (a path, a pattern); everything else is about the
// sandbox and is told by the closed list.
bool IsForTheModel(ErrorCode code) {
  int status = InfoOf(code).http_status;
  switch (code) {
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kStaleOwner:
    case ErrorCode::kSandboxUnclean:
    case ErrorCode::kSandboxLost:
    case ErrorCode::kSandboxNotReady:
    case ErrorCode::kSandboxSuspended:
    case ErrorCode::kHostUnsupported:
    case ErrorCode::kLimitNotEnforced:
      return false;
    case ErrorCode::kDiskFull:
    case ErrorCode::kSpawnFailed:
      return true;
    default:
      return status >= 400 && status < 500 && status != 499;
  }
}

bool IsForTheOperator(ErrorCode code) {
  switch (code) {
    case ErrorCode::kNoBackend:
    case ErrorCode::kHostUnsupported:
    case ErrorCode::kLimitNotEnforced:
    case ErrorCode::kIsolationNotPermitted:
    case ErrorCode::kCapabilityNotSupported:
    case ErrorCode::kEgressNotEnforced:
      return true;
    default:
      return false;
  }
}

// The run's end for a cancelled call; an outcome for everything else.
Result<ToolOutcome> ToOutcome(const Error& error) {
  if (error.code == ErrorCode::kCancelled) return Fail(error);
  std::string text = IsForTheModel(error.code)
                         ? fmt::format("Error ({}): {}", error.wire(), error.message)
                         : SandboxTrouble(error.code);
  return ToolOutcome::Failed(error.code, std::move(text));
}

#define TOOL_ASSIGN(lhs, expr) TOOL_ASSIGN_INNER(CAISSON_CONCAT(tool_result_, __LINE__), lhs, expr)
#define TOOL_ASSIGN_INNER(tmp, lhs, expr)                 \
  auto tmp = (expr);                                      \
  if (!tmp.has_value()) co_return ToOutcome(tmp.error()); \
  lhs = std::move(tmp).value()

Result<void> Checked(json::ObjectReader& reader) {
  return reader.Finish(json::ObjectReader::Unknown::kIgnore);
}

// Absolute paths as they are, relative ones from the work directory: both are what the guest does.
std::string PathQuery(std::string_view call, std::string_view path) {
  return fmt::format("{}?path={}", call, http::EncodeQueryValue(path));
}

Result<json::object> MetaOf(const http::ResponseHead& head) {
  auto meta = head.headers.Find(guest::kHeaderMeta);
  if (!meta.has_value())
    return Fail(ErrorCode::kProtocol, "the guest sent no description of a file");
  return json::ParseObject(*meta);
}

// Numbered lines; a long one goes on in rows "N.1", "N.2", ….
std::string Numbered(std::string_view text, int64_t first) {
  std::string out;
  int64_t number = first;
  for (;;) {
    std::string_view line = text.substr(0, text.find('\n'));
    out += fmt::format("{:>6}  {}\n", number, line.substr(0, kLongLine));
    int part = 1;
    for (size_t at = kLongLine; at < line.size(); at += kLongLine) {
      out += fmt::format("{:>6}  {}\n", fmt::format("{}.{}", number, part++),
                         line.substr(at, kLongLine));
    }
    if (line.size() == text.size()) return out;
    text.remove_prefix(line.size() + 1);
    number++;
  }
}

}  // namespace

std::string SandboxTrouble(ErrorCode code) {
  switch (code) {
    case ErrorCode::kSandboxUnclean:
    case ErrorCode::kOutcomeUnknown:
      return "The sandbox is in an unknown state and cannot be used any more. Whether the last "
             "call took effect "
             "is not known.";
    case ErrorCode::kSandboxLost:
    case ErrorCode::kConnectionLost:
      return "The sandbox is gone, and its files with it.";
    case ErrorCode::kDeadlineExceeded:
      return "The call took too long and was given up.";
    case ErrorCode::kQuotaExceeded:
    case ErrorCode::kOverloaded:
      return "No sandbox can be had at the moment. Try again later.";
    default:
      return "The sandbox is not available.";
  }
}

SandboxTools::SandboxTools(SandboxSource source, const Clock& clock, SandboxToolLimits limits)
    : source_(std::move(source)), clock_(clock), limits_(limits) {
  for (const SpecText& spec : kSpecs)
    specs_.push_back({spec.name, spec.description, spec.parameters});
}

const std::vector<SandboxTools::Entry>& SandboxTools::Entries() {
  static const std::vector<Entry> kEntries{
      {"execute", &SandboxTools::Execute},    {"ls", &SandboxTools::Ls},
      {"read_file", &SandboxTools::ReadFile}, {"write_file", &SandboxTools::WriteFile},
      {"edit_file", &SandboxTools::EditFile}, {"glob", &SandboxTools::Glob},
      {"grep", &SandboxTools::Grep},
  };
  return kEntries;
}

Task<Result<ToolOutcome>> SandboxTools::Call(std::string, std::string name, json::object arguments,
                                             Until until) {
  auto entry = std::ranges::find(Entries(), name, &Entry::name);
  if (entry == Entries().end()) co_return Fail(ErrorCode::kInternal, "no such tool: " + name);
  auto source = co_await source_(until);
  if (!source) {
    // Nothing the model does can change what the host or the profile lacks: the run ends, and
    // whoever started it is told.
    if (IsForTheOperator(source.error().code)) co_return Fail(std::move(source.error()));
    co_return ToOutcome(source.error());
  }
  Guest guest = std::move(*source);
  co_return co_await (this->*entry->tool)(std::move(guest), std::move(arguments), std::move(until));
}

Task<Result<ToolOutcome>> SandboxTools::Execute(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  sandbox::ExecRequest request;
  request.command = reader.RequiredString("command");
  auto timeout = reader.Int("timeout", 1, limits_.max_timeout.count() / 1000);
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  request.timeout = timeout.has_value() ? Millis(*timeout * 1000) : limits_.default_timeout;
  request.head_bytes = limits_.output_head_bytes;
  request.tail_bytes = limits_.output_tail_bytes;
  // When this server dies, nobody would ever read the result: the command goes with it.
  request.on_disconnect = sandbox::DisconnectAction::kKill;
  Millis patience = *request.timeout + Millis(30'000);
  TOOL_ASSIGN(sandbox::ExecStream stream,
              co_await guest->StartExec(std::move(request), until.Within(clock_, kFileTime)));
  ToolOutcome outcome;
  for (;;) {
    auto record = co_await stream.Next(until.Within(clock_, patience));
    if (!record) {
      // The call is over; the command must be, too.
      Until soon(Deadline::After(clock_, kFileTime));
      (void)co_await guest->Signal(stream.id(), "KILL", true, soon);
      if (record.error().code == ErrorCode::kCancelled) co_return Fail(record.error());
      co_return ToolOutcome::Failed(ErrorCode::kOutcomeUnknown,
                                    SandboxTrouble(ErrorCode::kOutcomeUnknown));
    }
    if (!record->has_value()) break;
    const auto& one = **record;
    if (one.type == guest::RecordType::kStdout || one.type == guest::RecordType::kStderr) {
      outcome.output += one.payload;
    } else if (one.type == guest::RecordType::kGap) {
      outcome.truncated = true;
      outcome.output += fmt::format(
          "\n[… output left out: a command's output shows its first {} and last {} bytes …]\n",
          limits_.output_head_bytes, limits_.output_tail_bytes);
    } else if (one.type == guest::RecordType::kExit) {
      TOOL_ASSIGN(sandbox::ExecExit exit, sandbox::ExecStream::ParseExit(one.payload));
      outcome.exit_code = exit.code;
      outcome.reason = NameOf(exit.reason);
      outcome.truncated = outcome.truncated || exit.stdout_truncated || exit.stderr_truncated;
      outcome.output = guest::ReplaceBadUtf8(outcome.output);
      if (!outcome.output.empty() && !outcome.output.ends_with('\n')) outcome.output += '\n';
      if (exit.code.has_value()) {
        outcome.output += fmt::format("[exit code {}", *exit.code);
      } else {
        outcome.output += fmt::format("[no exit code: {}{}", NameOf(exit.reason),
                                      exit.signal.empty() ? "" : ", signal " + exit.signal);
      }
      if (exit.reason == guest::ExitReason::kTimeout)
        outcome.output += fmt::format(" after {} ms", exit.duration.count());
      if (exit.still_running > 0)
        outcome.output += fmt::format("; {} of its processes still run", exit.still_running);
      outcome.output += "]";
    }
  }
  co_return outcome;
}

Task<Result<ToolOutcome>> SandboxTools::Ls(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  std::string path = reader.RequiredString("path");
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  TOOL_ASSIGN(std::string text,
              co_await guest->CallJson("GET", PathQuery(guest::kPathFileList, path), "",
                                       until.Within(clock_, kFileTime)));
  TOOL_ASSIGN(json::object answer, json::ParseObject(text));
  json::ObjectReader fields(answer);
  ToolOutcome outcome;
  const json::array* entries = fields.Array("entries");
  for (size_t i = 0; entries != nullptr && i < entries->size(); i++) {
    const json::object* object = (*entries)[i].if_object();
    if (object == nullptr) continue;
    json::ObjectReader entry(*object);
    outcome.output += entry.String("path").value_or("");
    outcome.output += entry.String("type") == "directory" ? "/\n" : "\n";
  }
  outcome.truncated = fields.Bool("truncated").value_or(false);
  if (outcome.output.empty()) outcome.output = "No files found";
  if (outcome.truncated) outcome.output += "[… more entries: list a subdirectory, or use glob …]";
  co_return outcome;
}

Task<Result<ToolOutcome>> SandboxTools::ReadFile(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  std::string path = reader.RequiredString("file_path");
  int64_t offset = reader.Int("offset", INT64_MIN, INT64_MAX).value_or(0);
  int64_t limit = reader.Int("limit", INT64_MIN, INT64_MAX).value_or(kReadLines);
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  std::string target =
      fmt::format("{}&offset={}&limit={}", PathQuery(guest::kPathFileLines, path),
                  std::max<int64_t>(offset, 0), std::clamp<int64_t>(limit, 0, 10'000));
  Until soon = until.Within(clock_, kFileTime);
  TOOL_ASSIGN(sandbox::GuestClient::Answer answer,
              co_await guest->Call("GET", std::move(target), "", "", soon));
  TOOL_ASSIGN(json::object meta, MetaOf(answer.head));
  TOOL_ASSIGN(std::string text,
              co_await answer.connection->ReadWholeBody(kMaxFileText + 4096, soon));
  json::ObjectReader fields(meta);
  auto total = fields.Int("total_lines", 0, INT64_MAX);
  auto start = fields.Int("start_line", 0, INT64_MAX);
  auto next = fields.Int("next_offset", 0, INT64_MAX);
  ToolOutcome outcome;
  if (total == 0 || (text.empty() && !start.has_value())) {
    outcome.output = total == 0 ? "The file is empty." : "No lines were asked for.";
    co_return outcome;
  }
  outcome.output = Numbered(text, start.value_or(1));
  outcome.truncated = next.has_value();
  if (next.has_value()) {
    outcome.output += fmt::format("[{} lines in all; go on with offset {}]",
                                  total.has_value() ? std::to_string(*total) : "many", *next);
  }
  co_return outcome;
}

Task<Result<ToolOutcome>> SandboxTools::WriteFile(Guest guest, json::object arguments,
                                                  Until until) {
  json::ObjectReader reader(arguments);
  std::string path = reader.RequiredString("file_path");
  if (!reader.Has("content")) reader.Wrong("content", "is required");
  std::string content = reader.String("content").value_or("");
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  std::string target = PathQuery(guest::kPathFileContent, path) + "&parents=1";
  Until soon = until.Within(clock_, kFileTime);
  TOOL_ASSIGN(sandbox::GuestClient::Answer answer,
              co_await guest->Call("PUT", std::move(target), std::string(guest::kMediaBytes),
                                   std::move(content), soon));
  // Read to its end, so that the connection can be used again.
  auto rest = co_await answer.connection->ReadWholeBody(kMaxFileText, soon);
  if (!rest) co_return ToOutcome(rest.error());
  co_return ToolOutcome{"Updated file " + path, std::nullopt, std::nullopt, "", false};
}

Task<Result<ToolOutcome>> SandboxTools::EditFile(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  std::string path = reader.RequiredString("file_path");
  if (!reader.Has("old_string")) reader.Wrong("old_string", "is required");
  if (!reader.Has("new_string")) reader.Wrong("new_string", "is required");
  json::object body{{"path", path},
                    {"old", reader.String("old_string").value_or("")},
                    {"new", reader.String("new_string").value_or("")},
                    {"replace_all", reader.Bool("replace_all").value_or(false)}};
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  TOOL_ASSIGN(std::string text,
              co_await guest->CallJson("POST", std::string(guest::kPathFileEdit),
                                       json::Serialize(body), until.Within(clock_, kFileTime)));
  TOOL_ASSIGN(json::object answer, json::ParseObject(text));
  int64_t count = json::ObjectReader(answer).Int("count", 0, INT64_MAX).value_or(0);
  co_return ToolOutcome{
      fmt::format("Successfully replaced {} instance(s) of the string in '{}'", count, path),
      std::nullopt, std::nullopt, "", false};
}

Task<Result<ToolOutcome>> SandboxTools::Glob(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  json::object body{{"pattern", reader.RequiredString("pattern")},
                    {"path", reader.String("path").value_or(".")}};
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  TOOL_ASSIGN(std::string text,
              co_await guest->CallJson("POST", std::string(guest::kPathGlob), json::Serialize(body),
                                       until.Within(clock_, kFileTime)));
  TOOL_ASSIGN(json::object answer, json::ParseObject(text));
  json::ObjectReader fields(answer);
  ToolOutcome outcome;
  const json::array* matches = fields.Array("matches");
  for (size_t i = 0; matches != nullptr && i < matches->size(); i++) {
    if (const json::object* match = (*matches)[i].if_object()) {
      outcome.output += json::ObjectReader(*match).String("path").value_or("") + "\n";
    }
  }
  outcome.truncated = fields.Bool("truncated").value_or(false);
  if (outcome.output.empty()) outcome.output = "No files found";
  if (outcome.truncated) outcome.output += "[… more files: use a narrower pattern …]";
  co_return outcome;
}

Task<Result<ToolOutcome>> SandboxTools::Grep(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  json::object body{{"pattern", reader.RequiredString("pattern")},
                    {"path", reader.String("path").value_or(".")}};
  if (auto glob = reader.String("glob")) body["glob"] = *glob;
  body["limit"] = reader.Int("max_count", 1, 10'000).value_or(1000);
  std::string mode = reader.Choice("output_mode", {"files_with_matches", "content", "count"})
                         .value_or("files_with_matches");
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  TOOL_ASSIGN(std::string text,
              co_await guest->CallJson("POST", std::string(guest::kPathGrep), json::Serialize(body),
                                       until.Within(clock_, kFileTime)));
  TOOL_ASSIGN(json::object answer, json::ParseObject(text));
  json::ObjectReader fields(answer);
  // In the guest's order: by path, then by line.
  std::vector<std::pair<std::string, std::string>> files;
  std::map<std::string, int> counts;
  const json::array* matches = fields.Array("matches");
  for (size_t i = 0; matches != nullptr && i < matches->size(); i++) {
    const json::object* object = (*matches)[i].if_object();
    if (object == nullptr) continue;
    json::ObjectReader match(*object);
    std::string path = match.String("path").value_or("");
    if (files.empty() || files.back().first != path) files.emplace_back(path, "");
    files.back().second += fmt::format("  {}: {}\n", match.Int("line", 0, INT64_MAX).value_or(0),
                                       match.String("text").value_or(""));
    counts[path]++;
  }
  ToolOutcome outcome;
  for (const auto& [path, lines] : files) {
    if (mode == "content") {
      outcome.output += fmt::format("{}\n{}", path, lines);
    } else if (mode == "count") {
      outcome.output += fmt::format("{}: {}\n", path, counts[path]);
    } else {
      outcome.output += path + "\n";
    }
  }
  outcome.truncated = fields.Bool("truncated").value_or(false);
  if (outcome.output.empty()) outcome.output = "No matches found";
  if (outcome.truncated)
    outcome.output += "[… more matches: use a narrower path, glob or pattern …]";
  co_return outcome;
}

}  // namespace caisson::agent
