#include "sandbox/guest_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "guest/text.h"
#include "json/reader.h"

namespace caisson::sandbox {
namespace {

// An error answer is small; more than this is not one.
constexpr size_t kMaxErrorBytes = 64 * 1024;

Error BadAnswer(std::string what) {
  return Error{ErrorCode::kProtocol,
               "the guest's answer cannot be read: " + std::move(what),
               {},
               std::nullopt};
}

Result<json::object> ParseObject(std::string_view text) {
  auto object = json::ParseObject(text);
  if (!object) return Fail(BadAnswer(object.error().message));
  return object;
}

// A field of the wrong type in an answer is the guest's fault, not the caller's.
Result<void> Check(const json::ObjectReader& reader) {
  auto checked = reader.Finish(json::ObjectReader::Unknown::kIgnore);
  if (!checked) return Fail(BadAnswer(checked.error().message));
  return {};
}

std::string Text(json::ObjectReader& reader, std::string_view name) {
  return reader.String(name).value_or("");
}
uint64_t Count(json::ObjectReader& reader, std::string_view name) {
  return static_cast<uint64_t>(reader.Int(name, 0, INT64_MAX).value_or(0));
}

Error ErrorOf(int status, std::string_view body) {
  auto object = ParseObject(body);
  if (object) {
    json::ObjectReader reader(*object);
    auto code = ErrorCodeFromWire(Text(reader, "code"));
    std::string message = Text(reader, "message");
    if (code.has_value() && Check(reader)) {
      return Error{*code, std::move(message), Text(reader, "errno"), std::nullopt};
    }
  }
  return BadAnswer(fmt::format("status {} without a known error code", status));
}

json::object ToJson(const ExecRequest& request) {
  json::object object;
  if (!request.id.empty()) object["id"] = request.id;
  // What is not UTF-8 travels as base64: an argument may be any bytes but NUL.
  bool utf8 = std::ranges::all_of(request.argv, guest::IsValidUtf8);
  if (request.command.has_value() && guest::IsValidUtf8(*request.command)) {
    object["command"] = *request.command;
  } else if (request.command.has_value()) {
    object["command_base64"] = guest::Base64Encode(*request.command);
  } else if (utf8) {
    object["argv"] = json::array(request.argv.begin(), request.argv.end());
  } else {
    json::array encoded;
    for (const std::string& argument : request.argv) {
      encoded.emplace_back(guest::Base64Encode(argument));
    }
    object["argv_base64"] = std::move(encoded);
  }
  if (!request.cwd.empty()) object["cwd"] = request.cwd;
  json::object env;
  for (const auto& [name, value] : request.env) env[name] = value;
  object["env"] = std::move(env);
  if (!request.umask.empty()) object["umask"] = request.umask;
  if (request.login) object["login"] = true;
  object["stdin"] = request.stdin_pipe ? "pipe" : "none";
  if (request.pty.has_value()) {
    object["pty"] = json::object{{"rows", request.pty->rows}, {"cols", request.pty->cols}};
  }
  if (request.timeout.has_value()) object["timeout_ms"] = request.timeout->count();
  if (request.head_bytes.has_value()) object["head_bytes"] = *request.head_bytes;
  if (request.tail_bytes > 0) object["tail_bytes"] = request.tail_bytes;
  if (request.keep_bytes > 0) object["keep_bytes"] = request.keep_bytes;
  object["on_output_limit"] =
      request.on_output_limit == OutputLimitAction::kKill ? "kill" : "discard";
  object["on_disconnect"] = request.on_disconnect == DisconnectAction::kKill ? "kill" : "continue";
  return object;
}

std::string ExecPath(std::string_view id, std::string_view rest) {
  return fmt::format("{}/{}{}", guest::kPathExecs, http::EncodeQueryValue(id), rest);
}

}  // namespace

GuestClient::GuestClient(std::unique_ptr<net::Dialer> dialer, std::string token, uint64_t fence,
                         const Clock& clock)
    : connections_(http::ConnectionPool::Make(std::move(dialer), clock)),
      token_(std::move(token)),
      fence_(fence),
      clock_(clock) {}
GuestClient::~GuestClient() = default;

http::RequestHead GuestClient::Head(std::string method, std::string target,
                                    std::string content_type, Until until) const {
  http::RequestHead head{std::move(method), std::move(target), {}};
  head.headers.Add("Host", "guest");
  head.headers.Add("Authorization", "Bearer " + token_);
  if (head.method != "GET") head.headers.Add("Caisson-Fence", fmt::to_string(fence_));
  if (!content_type.empty()) head.headers.Add("Content-Type", std::move(content_type));
  if (!until.deadline.never()) {
    auto left = std::chrono::duration_cast<Millis>(until.deadline.time() - clock_.MonoNow());
    auto bounded = std::clamp<int64_t>(left.count(), 1, guest::kMaxDeadlineMs);
    head.headers.Add("Caisson-Deadline-Ms", fmt::to_string(bounded));
  }
  return head;
}

Task<Result<void>> GuestClient::CheckStatus(const http::ResponseHead& answer,
                                            http::PooledConnection& connection, Until until) {
  if (answer.status < 400) co_return Result<void>();
  CAISSON_CO_ASSIGN(std::string text,
                    co_await connection->ReadWholeBody(kMaxErrorBytes, std::move(until)));
  co_return Fail(ErrorOf(answer.status, text));
}

Task<Result<GuestClient::Answer>> GuestClient::Call(std::string method, std::string target,
                                                    std::string content_type, std::string body,
                                                    Until until, http::Headers extra) {
  CAISSON_CO_ASSIGN(http::PooledConnection connection, co_await connections_->Borrow(until));
  http::RequestHead head =
      Head(std::move(method), std::move(target), std::move(content_type), until);
  for (const http::Header& field : extra.fields()) head.headers.Add(field.name, field.value);
  CAISSON_CO_ASSIGN(http::ResponseHead answer,
                    co_await connection->Send(std::move(head), body, until));
  CAISSON_CO_TRY(co_await CheckStatus(answer, connection, until));
  co_return Answer{std::move(answer), std::move(connection)};
}

Task<Result<std::string>> GuestClient::Upload(std::string method, std::string target,
                                              http::BodySource& body, Until until) {
  CAISSON_CO_ASSIGN(http::PooledConnection connection, co_await connections_->Borrow(until));
  http::RequestHead head =
      Head(std::move(method), std::move(target), std::string(guest::kMediaBytes), until);
  CAISSON_CO_ASSIGN(http::ResponseHead answer,
                    co_await connection->SendStream(std::move(head), body, std::nullopt, until));
  CAISSON_CO_TRY(co_await CheckStatus(answer, connection, until));
  co_return co_await connection->ReadWholeBody(guest::kMaxJsonBytes, until);
}

Task<Result<std::string>> GuestClient::CallJson(std::string method, std::string target,
                                                std::string body, Until until) {
  CAISSON_CO_ASSIGN(Answer answer,
                    co_await Call(std::move(method), std::move(target),
                                  std::string(guest::kMediaJson), std::move(body), until));
  co_return co_await answer.connection->ReadWholeBody(guest::kMaxJsonBytes, until);
}

Task<Result<void>> GuestClient::Connect(Until until) {
  if (!connections_->HasLive()) CAISSON_CO_TRY(co_await connections_->Borrow(std::move(until)));
  co_return Result<void>();
}

Task<Result<GuestHello>> GuestClient::Hello(Until until) {
  CAISSON_CO_ASSIGN(std::string text,
                    co_await CallJson("GET", std::string(guest::kPathHello), "", until));
  CAISSON_CO_ASSIGN(json::object object, ParseObject(text));
  json::ObjectReader reader(object);
  GuestHello hello;
  uint64_t protocol = Count(reader, "protocol");
  uint64_t oldest = Count(reader, "min_protocol");
  hello.build = Text(reader, "build");
  hello.arch = Text(reader, "arch");
  hello.work_dir = Text(reader, "work_dir");
  hello.pid1 = reader.Bool("pid1").value_or(false);
  hello.uid_separation = reader.Bool("uid_separation").value_or(false);
  hello.features = reader.Strings("features");
  CAISSON_CO_TRY(Check(reader));
  if (protocol < guest::kMinProtocolVersion || oldest > guest::kProtocolVersion) {
    co_return Fail(
        ErrorCode::kProtocol,
        fmt::format("the guest speaks protocol {} to {}, this server {} to {}; "
                    "create the sandbox again",
                    oldest, protocol, guest::kMinProtocolVersion, guest::kProtocolVersion));
  }
  hello.protocol = static_cast<uint32_t>(protocol);
  co_return hello;
}

Task<Result<RecordStream>> GuestClient::OpenStream(std::string method, std::string target,
                                                   std::string body, guest::RecordType last,
                                                   Until until) {
  std::string type = body.empty() ? "" : std::string(guest::kMediaJson);
  CAISSON_CO_ASSIGN(Answer answer, co_await Call(std::move(method), std::move(target),
                                                 std::move(type), std::move(body), until));
  if (answer.head.headers.Find("content-type") != guest::kMediaRecords) {
    co_return Fail(BadAnswer("a stream did not answer with records"));
  }
  co_return RecordStream(std::move(answer.connection), last);
}

Task<Result<ExecStream>> GuestClient::OpenExec(std::string method, std::string target,
                                               std::string body, Until until) {
  CAISSON_CO_ASSIGN(RecordStream records,
                    co_await OpenStream(std::move(method), std::move(target), std::move(body),
                                        guest::RecordType::kExit, std::move(until)));
  co_return ExecStream(std::move(records));
}

Task<Result<RecordStream>> GuestClient::Watch(std::string target, Until until) {
  auto records = co_await OpenStream("GET", std::move(target), "", guest::RecordType::kWatchEnd,
                                     std::move(until));
  // A guest of before does not know the call; a path that is not there is kFileNotFound.
  if (!records && records.error().code == ErrorCode::kNotFound) {
    co_return Fail(ErrorCode::kNotSupported, "the guest of this sandbox cannot watch files");
  }
  co_return records;
}

Result<void> GuestClient::BoundCommand(ExecRequest& request) const {
  if (!longest_command_.has_value()) return {};
  if (!request.timeout.has_value()) request.timeout = longest_command_;
  if (*request.timeout <= *longest_command_) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("timeout_ms is {}, and this sandbox's max_exec_ms is {}",
                          request.timeout->count(), longest_command_->count()));
}

Task<Result<ExecStream>> GuestClient::StartExec(ExecRequest request, Until until) {
  CAISSON_CO_TRY(BoundCommand(request));
  co_return co_await OpenExec("POST", std::string(guest::kPathExecs),
                              json::Serialize(ToJson(request)), std::move(until));
}

Task<Result<std::string>> GuestClient::StartInBackground(ExecRequest request, Until until) {
  CAISSON_CO_TRY(BoundCommand(request));
  json::object body = ToJson(request);
  body["background"] = true;
  co_return co_await CallJson("POST", std::string(guest::kPathExecs), json::Serialize(body),
                              std::move(until));
}

Task<Result<bool>> GuestClient::Busy(Until until) {
  CAISSON_CO_ASSIGN(std::string text,
                    co_await CallJson("GET", std::string(guest::kPathExecs), "", std::move(until)));
  CAISSON_CO_ASSIGN(json::object object, json::ParseObject(text));
  json::ObjectReader reader(object);
  const json::array* execs = reader.Array("execs");
  if (execs == nullptr) co_return Fail(BadAnswer("the list of commands has none"));
  for (const json::value& exec : *execs) {
    if (!exec.is_object()) continue;
    const json::value* state = exec.get_object().if_contains("state");
    if (state != nullptr && state->is_string() && state->get_string() == "running") co_return true;
  }
  co_return false;
}

Task<Result<ExecStream>> GuestClient::AttachExec(std::string exec_id, uint64_t after, Until until) {
  return OpenExec("GET", ExecPath(exec_id, fmt::format("/stream?after={}", after)), "",
                  std::move(until));
}

Task<Result<void>> GuestClient::WriteStdin(std::string exec_id, std::string data, bool eof,
                                           Until until) {
  CAISSON_CO_ASSIGN(Answer answer,
                    co_await Call("POST", ExecPath(exec_id, eof ? "/stdin?eof=1" : "/stdin"),
                                  std::string(guest::kMediaBytes), std::move(data), until));
  CAISSON_CO_TRY(co_await answer.connection->ReadWholeBody(kMaxErrorBytes, until));
  co_return Result<void>();
}

Task<Result<void>> GuestClient::Signal(std::string exec_id, std::string signal, bool tree,
                                       Until until) {
  json::object body{{"signal", signal}, {"scope", tree ? "tree" : "leader"}};
  CAISSON_CO_TRY(
      co_await CallJson("POST", ExecPath(exec_id, "/signal"), json::Serialize(body), until));
  co_return Result<void>();
}

Task<Result<std::optional<RecordStream::Record>>> RecordStream::Next(Until until) {
  for (;;) {
    if (ended_) co_return std::nullopt;
    std::array<uint8_t, guest::RecordHeader::kSize> bytes{};
    if (buffer_.size() >= bytes.size()) {
      std::copy_n(buffer_.begin(), bytes.size(), bytes.begin());
      auto header = guest::DecodeRecordHeader(bytes);
      if (!header.has_value()) co_return Fail(BadAnswer("a record header is not valid"));
      if (buffer_.size() >= bytes.size() + header->length) {
        Record record{header->type, header->offset, buffer_.substr(bytes.size(), header->length)};
        buffer_.erase(0, bytes.size() + header->length);
        if (record.type == last_) {
          ended_ = true;
          // Reads the end of the message too, so that the connection can be used again.
          CAISSON_CO_ASSIGN(std::string rest, co_await connection_->ReadBody(until));
          if (!rest.empty()) co_return Fail(BadAnswer("bytes follow the last record"));
        }
        co_return record;
      }
    }
    CAISSON_CO_ASSIGN(std::string more, co_await connection_->ReadBody(until));
    if (more.empty()) {
      co_return Fail(ErrorCode::kConnectionLost, "the stream ended without its last record");
    }
    buffer_ += more;
  }
}

Task<Result<std::optional<ExecStream::Record>>> ExecStream::Next(Until until) {
  CAISSON_CO_ASSIGN(auto record, co_await records_.Next(std::move(until)));
  if (!record.has_value()) co_return record;
  if (!guest::IsExecRecord(static_cast<uint8_t>(record->type))) {
    co_return Fail(BadAnswer("a record is no exec's"));
  }
  if (record->type == guest::RecordType::kStarted) {
    CAISSON_CO_ASSIGN(json::object started, ParseObject(record->payload));
    id_ = json::ObjectReader(started).String("id").value_or("");
  }
  co_return record;
}

Result<ExecExit> ExecStream::ParseExit(std::string_view payload) {
  CAISSON_ASSIGN(json::object object, ParseObject(payload));
  json::ObjectReader reader(object);
  ExecExit exit;
  if (auto code = reader.Int("code", 0, 255)) exit.code = static_cast<int>(*code);
  exit.signal = Text(reader, "signal");
  auto reason = guest::ExitReasonFromName(Text(reader, "reason"));
  if (!reason.has_value()) return Fail(BadAnswer("an exit record has no known reason"));
  exit.reason = *reason;
  exit.duration = Millis(Count(reader, "duration_ms"));
  exit.cpu = Millis(Count(reader, "cpu_ms"));
  exit.max_rss_bytes = Count(reader, "max_rss_bytes");
  exit.stdout_bytes = Count(reader, "stdout_bytes");
  exit.stderr_bytes = Count(reader, "stderr_bytes");
  exit.still_running = static_cast<uint32_t>(Count(reader, "still_running"));
  if (const json::object* truncated = reader.Object("truncated")) {
    json::ObjectReader flags(*truncated);
    exit.stdout_truncated = flags.Bool("stdout").value_or(false);
    exit.stderr_truncated = flags.Bool("stderr").value_or(false);
  }
  if (const json::object* kept = reader.Object("kept")) {
    json::ObjectReader sizes(*kept);
    exit.kept = ExecExit::Kept{Count(sizes, "stdout"), Count(sizes, "stderr")};
  }
  CAISSON_TRY(Check(reader));
  return exit;
}

}  // namespace caisson::sandbox
