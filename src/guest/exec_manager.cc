#include "guest/exec_manager.h"

#include <algorithm>
#include <utility>

#include "guest/exec_stream.h"
#include "guest/file_calls.h"
#include "guest/protocol.h"
#include "guest/signals.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

Error MakeError(ErrorCode code, std::string message) {
  return Error{code, std::move(message), {}, std::nullopt};
}

}  // namespace

ExecManager::ExecManager(ExecContext& context) : context_(context) {
  context_.children.Expect([this] { return context_.spawner.pending(); });
  context_.children.OnOrphan([this] {
    for (auto& [id, exec] : execs_) exec->CheckLeftovers();
    for (auto& exec : forgotten_) exec->CheckLeftovers();
  });
}

void ExecManager::Install() {
  context_.server.Route("POST", kPathExecs, [this](Connection& connection, std::string_view) {
    connection.TakeWhole(kMaxJsonBytes, [this](Connection& same, std::string body) {
      Create(same, std::move(body));
    });
  });
  context_.server.Route("GET", kPathExecs,
                        [this](Connection& connection, std::string_view) { List(connection); });
  context_.server.RoutePrefix("/v1/execs/", [this](Connection& connection, std::string_view rest) {
    CallOne(connection, rest);
  });
}

size_t ExecManager::running() const {
  size_t count = starting_.size();
  for (const auto& [id, exec] : execs_) count += exec->ended() ? 0 : 1;
  return count;
}

Exec* ExecManager::Find(std::string_view id) {
  auto it = execs_.find(id);
  return it == execs_.end() ? nullptr : it->second.get();
}

void ExecManager::Create(Connection& connection, std::string body) {
  auto json = Json::Parse(body);
  if (!json) return connection.ReplyError(json.error());
  uint64_t serial = next_serial_++;
  auto spec = ParseExecSpec(*json, context_.config, serial);
  if (!spec) return connection.ReplyError(spec.error());
  if (execs_.contains(spec->id) || starting_.contains(spec->id)) {
    return connection.ReplyError(MakeError(ErrorCode::kExecExists, "there is an exec " + spec->id));
  }
  if (running() >= kMaxExecs) {
    return connection.ReplyError(MakeError(ErrorCode::kTooManyExecs, "256 commands are running"));
  }
  std::string id = spec->id;
  auto exec = std::make_unique<Exec>(context_, *std::move(spec), serial,
                                     [this](Exec& changed) { Changed(changed); });
  auto started =
      exec->Start([this, stream = connection.id()](Exec& which, std::optional<Error> error) {
        Started(stream, which, std::move(error));
      });
  if (!started) return connection.ReplyError(started.error());
  starting_.emplace(std::move(id), std::move(exec));
}

void ExecManager::Started(uint64_t connection_id, Exec& exec, std::optional<Error> error) {
  auto node = starting_.extract(exec.id());
  Connection* connection = context_.server.Find(connection_id);
  if (error) {
    if (connection != nullptr) connection->ReplyError(*error);
    // It stays until its group is empty (its child may not have quite ended), or, when the spawner
    // never answered, for good: the answer may still come.
    if (!node.empty()) forgotten_.push_back(std::move(node.mapped()));
    Changed(exec);
    return;
  }
  if (node.empty()) return;  // given up before
  execs_.insert(std::move(node));
  if (connection == nullptr) {
    if (exec.spec().kill_on_disconnect) exec.Kill(ExitReason::kKilled);
    return;
  }
  if (exec.spec().background) {
    connection->ReplyJson(201, exec.StateJson());
    return;
  }
  if (exec.spec().kill_on_disconnect) {
    connection->OnReplyOver([this, id = exec.id()](bool complete) {
      Exec* which = complete ? nullptr : Find(id);
      if (which != nullptr && !which->ended()) which->Kill(ExitReason::kKilled);
    });
  }
  connection->ReplyStream(
      200, kMediaRecords, std::nullopt,
      std::make_unique<OutputReader>(context_.server, context_.loop, connection_id, exec, 0));
}

void ExecManager::List(Connection& connection) {
  std::string text = "{\"execs\":[";
  bool first = true;
  for (const auto& [id, exec] : execs_) {
    if (!first) text += ',';
    first = false;
    text += exec->StateJson();
  }
  connection.ReplyJson(200, text + "]}");
}

void ExecManager::CallOne(Connection& connection, std::string_view rest) {
  size_t slash = rest.find('/');
  std::string_view id = rest.substr(0, slash);
  std::string_view action =
      slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  Exec* exec = Find(id);
  if (exec == nullptr) {
    return connection.ReplyError(MakeError(ErrorCode::kExecNotFound, "no such exec"));
  }
  const std::string& method = connection.request().method;
  if (action.empty() && method == "GET") return connection.ReplyJson(200, exec->StateJson());
  if (action.empty() && method == "DELETE") return Delete(connection, *exec);
  if (action == "stream" && method == "GET") return Stream(connection, *exec);
  if (action == "output" && method == "GET") return Output(connection, *exec);
  if (action == "stdin" && method == "POST") return Stdin(connection, *exec);
  if ((action == "signal" || action == "resize") && method == "POST") {
    bool signal = action == "signal";
    connection.TakeWhole(
        kMaxJsonBytes, [this, signal, name = std::string(id)](Connection& same, std::string body) {
          auto json = Json::Parse(body);
          if (!json) return same.ReplyError(json.error());
          Exec* which = Find(name);
          if (which == nullptr) {
            return same.ReplyError(MakeError(ErrorCode::kExecNotFound, "no such exec"));
          }
          signal ? Signal(same, *which, *json) : Resize(same, *which, *json);
        });
    return;
  }
  bool known = action.empty() || action == "stream" || action == "output" || action == "stdin" ||
               action == "signal" || action == "resize";
  connection.ReplyError(known ? MakeError(ErrorCode::kMethodNotAllowed, "not a method of this path")
                              : MakeError(ErrorCode::kNotFound, "there is no such call"));
}

void ExecManager::Stream(Connection& connection, Exec& exec) {
  uint64_t after = 0;
  if (const std::string* text = connection.request().Query("after")) {
    auto number = ParseDecimal(*text);
    if (!number || *number > exec.log().total()) {
      return connection.ReplyError(MakeError(
          ErrorCode::kInvalidArgument, "`after` is beyond the current offset " +
                                           Decimal(static_cast<int64_t>(exec.log().total()))));
    }
    after = *number;
  }
  connection.ReplyStream(
      200, kMediaRecords, std::nullopt,
      std::make_unique<OutputReader>(context_.server, context_.loop, connection.id(), exec, after));
}

void ExecManager::Output(Connection& connection, Exec& exec) {
  if (exec.kept() == nullptr) {
    return connection.ReplyError(
        MakeError(ErrorCode::kConflict, "the command was started without `keep_bytes`"));
  }
  const HttpRequest& http = connection.request();
  const std::string* name = http.Query("stream");
  bool is_stderr = name != nullptr && *name == "stderr";
  if (name != nullptr && !is_stderr && *name != "stdout") {
    return connection.ReplyError(
        MakeError(ErrorCode::kInvalidArgument, "`stream` must be stdout or stderr"));
  }
  auto offset = QueryInt(http, "offset", 0, 0, INT64_MAX);
  auto limit = QueryInt(http, "limit", kMaxRecordBytes, 0, kMaxKeptBytes);
  for (const auto* number : {&offset, &limit}) {
    if (!*number) return connection.ReplyError(number->error());
  }
  RecordType type = is_stderr ? RecordType::kStderr : RecordType::kStdout;
  auto kept = static_cast<int64_t>(exec.kept()->size(type));
  if (*offset > kept) {
    return connection.ReplyError(
        MakeError(ErrorCode::kOffsetPastEnd,
                  "`offset` is beyond the " + Decimal(kept) + " bytes that are kept"));
  }
  auto file = exec.kept()->Duplicate(type);
  if (!file) return connection.ReplyError(file.error());
  int64_t size = std::min(*limit, kept - *offset);
  uint64_t total = is_stderr ? exec.log().stderr_bytes() : exec.log().stdout_bytes();
  JsonWriter meta;
  meta.BeginObject().Field("offset", *offset).Field("size_bytes", size);
  meta.Field("kept_bytes", kept).Field("total_bytes", static_cast<int64_t>(total)).EndObject();
  std::string extra(kHeaderMeta);
  extra += ": " + meta.text() + "\r\n";
  connection.ReplyStream(200, kMediaBytes, static_cast<uint64_t>(size),
                         std::make_unique<KeptSource>(*std::move(file), *offset, size), extra);
}

void ExecManager::Stdin(Connection& connection, Exec& exec) {
  if (exec.ended()) {
    return connection.ReplyError(MakeError(ErrorCode::kExecEnded, "the command has ended"));
  }
  if (!exec.spec().stdin_pipe && !exec.spec().pty) {
    return connection.ReplyError(
        MakeError(ErrorCode::kConflict, "the command was started without stdin"));
  }
  if (!exec.stdin_fd()) {
    return connection.ReplyError(MakeError(ErrorCode::kExecEnded, "stdin is closed"));
  }
  if (exec.stdin_writer() != nullptr) {
    return connection.ReplyError(
        MakeError(ErrorCode::kConflict, "another call writes to this stdin"));
  }
  const std::string* eof = connection.request().Query("eof");
  connection.TakeStream(std::make_unique<StdinSink>(context_.server, context_.loop, connection.id(),
                                                    exec, eof != nullptr && *eof == "1"));
}

void ExecManager::Signal(Connection& connection, Exec& exec, const Json& body) {
  Fields fields(body);
  std::string name = fields.Required("signal");
  std::string scope = fields.BytesOr("scope", "leader");
  int number = SignalNumber(name);
  if (number == 0) fields.Complain("`signal` is unknown");
  if (scope != "leader" && scope != "tree") fields.Complain("`scope` must be leader or tree");
  if (fields.error()) return connection.ReplyError(*fields.error());
  if (exec.ended()) {
    return connection.ReplyError(MakeError(ErrorCode::kExecEnded, "the command has ended"));
  }
  if (scope == "tree" && name.ends_with("KILL")) {
    exec.Kill(ExitReason::kKilled);
  } else {
    exec.Signal(number, scope == "tree");
  }
  connection.ReplyJson(200, "{}");
}

void ExecManager::Resize(Connection& connection, Exec& exec, const Json& body) {
  Fields fields(body);
  ExecSpec::Window window{static_cast<uint16_t>(fields.IntOr("rows", 24, 1, 10'000)),
                          static_cast<uint16_t>(fields.IntOr("cols", 80, 1, 10'000))};
  if (fields.error()) return connection.ReplyError(*fields.error());
  auto done = exec.Resize(window);
  if (!done) return connection.ReplyError(done.error());
  connection.ReplyJson(200, "{}");
}

void ExecManager::Delete(Connection& connection, Exec& exec) {
  deletes_.push_back({connection.id(), exec.id(), MonotonicMs() + 2 * kKillGraceMs});
  exec.Kill(ExitReason::kKilled);
  Changed(exec);
  // In case the end is never confirmed.
  context_.loop.After(2 * kKillGraceMs + 1, [this] { FinishDeletes(); });
}

void ExecManager::Changed(Exec& exec) {
  if (exec.ended() && execs_.contains(exec.id()) &&
      std::find(ended_order_.begin(), ended_order_.end(), exec.id()) == ended_order_.end()) {
    ended_order_.push_back(exec.id());
  }
  // Whatever is destroyed here may be the caller.
  if (std::exchange(tidy_scheduled_, true)) return;
  context_.loop.Defer([this] { Tidy(); });
}

void ExecManager::Tidy() {
  tidy_scheduled_ = false;
  FinishDeletes();
  while (ended_order_.size() > kMaxFinishedExecs) {
    auto node = execs_.extract(ended_order_.front());
    ended_order_.pop_front();
    if (!node.empty()) forgotten_.push_back(std::move(node.mapped()));
  }
  // What a command left behind is kept track of, also after the command is forgotten.
  std::erase_if(forgotten_, [](const ExecPtr& exec) {
    exec->CheckLeftovers();
    return exec->over() && !exec->has_readers();
  });
  if (all_dead_ && running() == 0) {
    bool left = false;
    for (const auto& [id, exec] : execs_) left |= !exec->tree_gone();
    for (const auto& exec : forgotten_) left |= exec->ended() && !exec->tree_gone();
    if (!left) std::exchange(all_dead_, nullptr)();
  }
}

void ExecManager::FinishDeletes() {
  std::vector<PendingDelete> waiting;
  for (PendingDelete& pending : std::exchange(deletes_, {})) {
    Exec* exec = Find(pending.id);
    bool over = exec == nullptr || (exec->ended() && exec->tree_gone());
    if (!over && MonotonicMs() < pending.deadline_ms) {
      waiting.push_back(std::move(pending));
      continue;
    }
    Connection* connection = context_.server.Find(pending.connection_id);
    if (over && exec != nullptr) {
      std::erase(ended_order_, pending.id);
      auto node = execs_.extract(pending.id);
      forgotten_.push_back(std::move(node.mapped()));
    }
    if (connection == nullptr) continue;
    if (over) {
      connection->ReplyJson(200, "{}");
    } else {
      connection->ReplyError(
          MakeError(ErrorCode::kOutcomeUnknown, "the end of the command was not confirmed"));
    }
  }
  for (PendingDelete& pending : waiting) deletes_.push_back(std::move(pending));
}

void ExecManager::KillAll(std::function<void()> done) {
  all_dead_ = std::move(done);
  for (auto* list : {&execs_, &starting_}) {
    for (auto& [id, exec] : *list) exec->Kill(ExitReason::kKilled);
  }
  for (auto& exec : forgotten_) exec->Kill(ExitReason::kKilled);
  context_.loop.After(kKillGraceMs, [this] {
    if (auto callback = std::exchange(all_dead_, nullptr)) callback();
  });
  if (!std::exchange(tidy_scheduled_, true)) context_.loop.Defer([this] { Tidy(); });
}

}  // namespace caisson::guest
