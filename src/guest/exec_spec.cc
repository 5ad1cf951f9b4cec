// Reading the body of POST /v1/execs.
#include "guest/exec_manager.h"
#include "guest/json.h"
#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxIdBytes = 64;
constexpr int64_t kMaxTailBytes = 1024 * 1024;
constexpr int64_t kMaxTimeoutMs = int64_t{1} << 40;

bool IsExecId(std::string_view id) {
  if (id.empty() || id.size() > kMaxIdBytes) return false;
  for (char c : id) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) return false;
  }
  return true;
}

bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

Result<void> ReadArgv(Fields& fields, ExecSpec& spec) {
  bool encoded = fields.Has("argv_base64");
  const Json* list = fields.Member(encoded ? "argv_base64" : "argv", Json::Type::kArray);
  if (list == nullptr) return {};
  for (const Json& item : list->items()) {
    if (!item.is(Json::Type::kString)) {
      fields.Complain("`argv` must hold strings");
      return {};
    }
    std::string value = item.AsString();
    if (encoded) {
      auto bytes = Base64Decode(value);
      if (!bytes) {
        fields.Complain("`argv_base64` holds text that is not base64");
        return {};
      }
      value = *std::move(bytes);
    }
    if (HasNul(value)) fields.Complain("an element of `argv` has a NUL");
    if (value.size() >= kMaxArgBytes) {
      return Fail(ErrorCode::kArgumentTooLarge,
                  "an element of `argv` exceeds the kernel's 131071 bytes");
    }
    spec.argv.push_back(std::move(value));
  }
  if (spec.argv.empty() || spec.argv[0].empty()) fields.Complain("`argv` names no program");
  return {};
}

Result<void> ReadEnv(Fields& fields, ExecSpec& spec) {
  const Json* env = fields.Member("env", Json::Type::kObject);
  if (env == nullptr) return {};
  for (size_t i = 0; i < env->items().size(); i++) {
    const std::string& name = env->keys()[i];
    const Json& value = env->items()[i];
    if (name.empty() || name.find('=') != std::string::npos || HasNul(name)) {
      fields.Complain("a name in `env` is empty or has '=' or NUL");
    } else if (!value.is(Json::Type::kString) || HasNul(value.AsString())) {
      fields.Complain("`env." + name.substr(0, 100) + "` must be a string without NUL");
    } else if (name.size() + value.AsString().size() + 1 >= kMaxArgBytes) {
      return Fail(ErrorCode::kArgumentTooLarge,
                  "`env." + name.substr(0, 100) + "` exceeds the kernel's 131071 bytes");
    }
    spec.env[name] = value.is(Json::Type::kString) ? value.AsString() : std::string();
  }
  return {};
}

}  // namespace

Result<ExecSpec> ParseExecSpec(const Json& body, const Config& config, uint64_t serial) {
  Fields fields(body);
  ExecSpec spec;
  spec.id = fields.BytesOr("id", "exec-" + Decimal(static_cast<int64_t>(serial)));
  if (!IsExecId(spec.id)) fields.Complain("`id` must be 1 to 64 of a-z0-9_-");
  bool has_command = fields.Has("command") || fields.Has("command_base64");
  spec.command = fields.BytesOr("command", "");
  CAISSON_TRY(ReadArgv(fields, spec));
  if (has_command == (fields.Has("argv") || fields.Has("argv_base64"))) {
    fields.Complain("exactly one of `command` and `argv` is expected");
  }
  if (HasNul(spec.command)) fields.Complain("`command` has a NUL");
  spec.cwd = fields.BytesOr("cwd", config.work_dir);
  if (!spec.cwd.starts_with('/') || HasNul(spec.cwd) || spec.cwd.size() >= kMaxPathBytes) {
    if (!fields.error()) {
      return Fail(ErrorCode::kInvalidCwd, "`cwd` must be an absolute path of at most 4095 bytes");
    }
  }
  CAISSON_TRY(ReadEnv(fields, spec));
  std::string input = fields.BytesOr("stdin", "none");
  spec.stdin_pipe = input == "pipe";
  if (input != "none" && input != "pipe") fields.Complain("`stdin` must be none or pipe");
  if (const Json* pty = fields.Member("pty", Json::Type::kObject)) {
    Fields window(*pty);
    spec.pty = ExecSpec::Window{static_cast<uint16_t>(window.IntOr("rows", 24, 1, 10'000)),
                                static_cast<uint16_t>(window.IntOr("cols", 80, 1, 10'000))};
    if (window.error()) fields.Complain("`pty`: " + window.error()->message);
  }
  spec.timeout_ms = fields.IntOr("timeout_ms", 0, 0, kMaxTimeoutMs);
  if (auto head = fields.Int("head_bytes", 0, INT64_MAX)) {
    spec.head_bytes = static_cast<uint64_t>(*head);
  }
  spec.tail_bytes = static_cast<size_t>(fields.IntOr("tail_bytes", 0, 0, kMaxTailBytes));
  spec.keep_bytes = static_cast<uint64_t>(fields.IntOr("keep_bytes", 0, 0, kMaxKeptBytes));
  std::string limit = fields.BytesOr("on_output_limit", "discard");
  spec.kill_on_limit = limit == "kill";
  if (limit != "discard" && limit != "kill") {
    fields.Complain("`on_output_limit` must be discard or kill");
  }
  std::string disconnect = fields.BytesOr("on_disconnect", "continue");
  spec.kill_on_disconnect = disconnect == "kill";
  if (disconnect != "continue" && disconnect != "kill") {
    fields.Complain("`on_disconnect` must be kill or continue");
  }
  spec.background = fields.Bool("background", false);
  spec.login = fields.Bool("login", false);
  if (spec.login && !spec.argv.empty()) fields.Complain("`login` is for `command`");
  if (auto text = fields.Bytes("umask")) {
    auto mode = ParseOctalMode(*text);
    if (!mode || *mode > 0777) fields.Complain("`umask` must be octal digits, at most 0777");
    spec.umask = mode.value_or(022);
  }
  if (fields.error()) return Fail(*fields.error());
  return spec;
}

}  // namespace caisson::guest
