// The tools that search: glob, grep.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "agent/tools/outcome.h"
#include "agent/tools/sandbox_tools.h"

namespace caisson::agent {
namespace {

constexpr int64_t kMaxContext = 100;

struct FileMatches {
  std::string path;
  std::string lines;  // as they are shown
  int count = 0;      // of matches
};

// In the guest's order: by path, then by line. As `grep -C` has it, a `:` stands behind the number
// of a match and a `-` behind that of a line around it, and with `runs` a `--` where lines are left
// out.
std::vector<FileMatches> ByFile(const json::array* matches, bool runs) {
  std::vector<FileMatches> files;
  int64_t last = 0;
  for (size_t i = 0; matches != nullptr && i < matches->size(); i++) {
    const json::object* object = (*matches)[i].if_object();
    if (object == nullptr) continue;
    json::ObjectReader match(*object);
    std::string path = match.String("path").value_or("");
    int64_t line = match.Int("line", 0, INT64_MAX).value_or(0);
    bool is_context = match.Bool("context").value_or(false);
    bool first = files.empty() || files.back().path != path;
    if (first) files.push_back({std::move(path), "", 0});
    FileMatches& file = files.back();
    if (runs && !first && line != last + 1) file.lines += "  --\n";
    file.lines +=
        fmt::format("  {}{} {}\n", line, is_context ? '-' : ':', match.String("text").value_or(""));
    if (!is_context) file.count++;
    last = line;
  }
  return files;
}

}  // namespace

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
  body["regex"] = reader.Bool("regex").value_or(false);
  body["ignore_case"] = reader.Bool("ignore_case").value_or(false);
  int64_t context = reader.Int("context", 0, kMaxContext).value_or(0);
  body["before"] = body["after"] = context;
  std::string mode = reader.Choice("output_mode", {"files_with_matches", "content", "count"})
                         .value_or(context > 0 ? "content" : "files_with_matches");
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  TOOL_ASSIGN(std::string text,
              co_await guest->CallJson("POST", std::string(guest::kPathGrep), json::Serialize(body),
                                       until.Within(clock_, kFileTime)));
  TOOL_ASSIGN(json::object answer, json::ParseObject(text));
  json::ObjectReader fields(answer);
  ToolOutcome outcome;
  for (const FileMatches& file : ByFile(fields.Array("matches"), context > 0)) {
    if (mode == "content") {
      outcome.output += fmt::format("{}\n{}", file.path, file.lines);
    } else if (mode == "count") {
      outcome.output += fmt::format("{}: {}\n", file.path, file.count);
    } else {
      outcome.output += file.path + "\n";
    }
  }
  outcome.truncated = fields.Bool("truncated").value_or(false);
  if (outcome.output.empty()) outcome.output = "No matches found";
  if (outcome.truncated)
    outcome.output += "[… more matches: use a narrower path, glob or pattern …]";
  co_return outcome;
}

}  // namespace caisson::agent
