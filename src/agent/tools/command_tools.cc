// The tools for commands: execute, read_output.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "agent/tools/outcome.h"
#include "agent/tools/sandbox_tools.h"
#include "guest/text.h"

namespace caisson::agent {
namespace {

constexpr int64_t kOutputPage = 16 * 1024;
constexpr int64_t kMaxOutputPage = 64 * 1024;

// One stream of a command: what it wrote, and what of it is in the text for the model.
struct StreamCount {
  std::string_view name;
  uint64_t head = 0;  // before the gap
  uint64_t tail = 0;
  uint64_t total = 0;
  uint64_t kept = 0;  // from its start, for read_output

  // What is missing and how to get it; empty when nothing is.
  std::string Missing(std::string_view exec_id) const {
    if (total <= head + tail) return {};
    std::string text = fmt::format("\n[{} bytes of {} left out; ", total - head - tail, name);
    if (kept <= head) return text + "they are not kept]";
    text += fmt::format("read_output with exec_id \"{}\", stream \"{}\", offset {} reads them",
                        exec_id, name, head);
    if (kept < total - tail) text += fmt::format(" up to byte {}; the rest is not kept", kept);
    return text + "]";
  }
};

uint64_t SkippedBytes(std::string_view gap) {
  auto fields = json::ParseObject(gap);
  if (!fields) return 0;
  return static_cast<uint64_t>(
      json::ObjectReader(*fields).Int("skipped_bytes", 0, INT64_MAX).value_or(0));
}

// "[exit code 1; 2 of its processes still run]"
std::string EndOf(const sandbox::ExecExit& exit) {
  std::string text = exit.code.has_value()
                         ? fmt::format("[exit code {}", *exit.code)
                         : fmt::format("[no exit code: {}{}", NameOf(exit.reason),
                                       exit.signal.empty() ? "" : ", signal " + exit.signal);
  if (exit.reason == guest::ExitReason::kTimeout)
    text += fmt::format(" after {} ms", exit.duration.count());
  if (exit.still_running > 0)
    text += fmt::format("; {} of its processes still run", exit.still_running);
  return text + "]";
}

}  // namespace

Task<Result<ToolOutcome>> SandboxTools::Execute(Guest guest, json::object arguments, Until until) {
  json::ObjectReader reader(arguments);
  sandbox::ExecRequest request;
  request.command = reader.RequiredString("command");
  auto timeout = reader.Int("timeout", 1, limits_.max_timeout.count() / 1000);
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  // What the model has not asked for must not be refused.
  Millis usual =
      std::min(limits_.default_timeout, guest->longest_command().value_or(limits_.default_timeout));
  request.timeout = timeout.has_value() ? Millis(*timeout * 1000) : usual;
  request.head_bytes = limits_.output_head_bytes;
  request.tail_bytes = limits_.output_tail_bytes;
  request.keep_bytes = limits_.output_kept_bytes;
  // When this server dies, nobody would ever read the result: the command goes with it.
  request.on_disconnect = sandbox::DisconnectAction::kKill;
  Millis patience = *request.timeout + Millis(30'000);
  auto started = co_await guest->StartExec(request, until.Within(clock_, kFileTime));
  if (!started && started.error().code == ErrorCode::kNotSupported) {
    // No file can be made for it. Whoever makes room again needs commands, too.
    request.keep_bytes = 0;
    started = co_await guest->StartExec(std::move(request), until.Within(clock_, kFileTime));
  }
  TOOL_ASSIGN(sandbox::ExecStream stream, std::move(started));
  ToolOutcome outcome;
  StreamCount out{"stdout"};
  StreamCount err{"stderr"};
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
      StreamCount& count = one.type == guest::RecordType::kStdout ? out : err;
      (outcome.truncated ? count.tail : count.head) += one.payload.size();
    } else if (one.type == guest::RecordType::kGap) {
      outcome.truncated = true;
      outcome.output +=
          fmt::format("\n[… {} bytes left out here; see the end …]\n", SkippedBytes(one.payload));
    } else if (one.type == guest::RecordType::kExit) {
      TOOL_ASSIGN(sandbox::ExecExit exit, sandbox::ExecStream::ParseExit(one.payload));
      outcome.exit_code = exit.code;
      outcome.reason = NameOf(exit.reason);
      outcome.truncated = outcome.truncated || exit.stdout_truncated || exit.stderr_truncated;
      outcome.output = guest::ReplaceBadUtf8(outcome.output);
      if (!outcome.output.empty() && !outcome.output.ends_with('\n')) outcome.output += '\n';
      outcome.output += EndOf(exit);
      out.total = exit.stdout_bytes;
      err.total = exit.stderr_bytes;
      if (exit.kept.has_value()) {
        out.kept = exit.kept->stdout_bytes;
        err.kept = exit.kept->stderr_bytes;
      }
      outcome.output += out.Missing(stream.id()) + err.Missing(stream.id());
    }
  }
  co_return outcome;
}

Task<Result<ToolOutcome>> SandboxTools::ReadOutput(Guest guest, json::object arguments,
                                                   Until until) {
  json::ObjectReader reader(arguments);
  std::string id = reader.RequiredString("exec_id");
  std::string stream = reader.Choice("stream", {"stdout", "stderr"}).value_or("stdout");
  int64_t offset = reader.Int("offset", 0, INT64_MAX).value_or(0);
  int64_t limit = std::clamp<int64_t>(
      reader.Int("limit", INT64_MIN, INT64_MAX).value_or(kOutputPage), 1, kMaxOutputPage);
  if (auto wrong = Checked(reader); !wrong) co_return ToOutcome(wrong.error());
  // One byte more tells whether the last character is whole.
  std::string target = fmt::format("{}/{}/output?stream={}&offset={}&limit={}", guest::kPathExecs,
                                   http::EncodeQueryValue(id), stream, offset, limit + 1);
  Until soon = until.Within(clock_, kFileTime);
  TOOL_ASSIGN(sandbox::GuestClient::Answer answer,
              co_await guest->Call("GET", std::move(target), "", "", soon));
  TOOL_ASSIGN(json::object meta, MetaOf(answer.head));
  TOOL_ASSIGN(std::string bytes,
              co_await answer.connection->ReadWholeBody(kMaxOutputPage + 1, soon));
  std::string_view page = guest::CutText(bytes, static_cast<size_t>(limit));
  if (page.empty()) page = std::string_view(bytes).substr(0, static_cast<size_t>(limit));
  json::ObjectReader fields(meta);
  int64_t kept = fields.Int("kept_bytes", 0, INT64_MAX).value_or(0);
  int64_t total = fields.Int("total_bytes", 0, INT64_MAX).value_or(0);
  int64_t next = offset + static_cast<int64_t>(page.size());
  ToolOutcome outcome;
  outcome.output = guest::ReplaceBadUtf8(page);
  outcome.truncated = next < total;
  if (!outcome.output.empty() && !outcome.output.ends_with('\n')) outcome.output += '\n';
  outcome.output += fmt::format("[bytes {} to {} of {}", offset, next, total);
  if (next < kept) {
    outcome.output += fmt::format("; go on with offset {}", next);
  } else if (next < total) {
    outcome.output += "; the rest is not kept";
  }
  outcome.output += "]";
  co_return outcome;
}

}  // namespace caisson::agent
