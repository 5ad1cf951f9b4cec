#include "agent/tools/sandbox_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/tools/outcome.h"
#include "http/message.h"
#include "json/reader.h"

namespace caisson::agent {
namespace {

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
    {"read_output",
     "Read what execute left out of a long output. The cut result says which exec_id, stream and "
     "offset to give.",
     R"json({"type":"object","required":["exec_id"],"properties":{"exec_id":{"type":"string"},
"stream":{"enum":["stdout","stderr"],"description":"default stdout"},
"offset":{"type":"integer","description":"bytes of that stream to skip (default 0)"},
"limit":{"type":"integer","description":"bytes to read (default 16384, at most 65536)"}}})json"},
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
    {"grep",
     "Find lines that contain a text, or match a regular expression, in the files below path.",
     R"json({"type":"object","required":["pattern"],"properties":{"pattern":{"type":"string"},
"path":{"type":"string"},"glob":{"type":"string","description":"only in files whose name matches"},
"output_mode":{"enum":["files_with_matches","content","count"],
"description":"default files_with_matches, with context content"},
"regex":{"type":"boolean","description":"the pattern is a regular expression (RE2's syntax)"},
"ignore_case":{"type":"boolean","description":"of ASCII letters"},
"context":{"type":"integer","description":"lines to show around each match, as grep -C does"},
"max_count":{"type":"integer"}}})json"},
};

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

// Absolute paths as they are, relative ones from the work directory: both are what the guest does.
std::string PathQuery(std::string_view call, std::string_view path) {
  return fmt::format("{}?path={}", call, http::EncodeQueryValue(path));
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
      {"execute", &SandboxTools::Execute},
      {"read_output", &SandboxTools::ReadOutput},
      {"ls", &SandboxTools::Ls},
      {"read_file", &SandboxTools::ReadFile},
      {"write_file", &SandboxTools::WriteFile},
      {"edit_file", &SandboxTools::EditFile},
      {"glob", &SandboxTools::Glob},
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

}  // namespace caisson::agent
