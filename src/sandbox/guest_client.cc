#include "sandbox/guest_client.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <utility>

namespace caisson::sandbox {
namespace {

namespace json = boost::json;

constexpr size_t kMaxIdle = 8;
// An error answer is small; more than this is not one.
constexpr size_t kMaxErrorBytes = 64 * 1024;

Error BadAnswer(std::string what) {
  return Error{ErrorCode::kProtocol,
               "the guest's answer cannot be read: " + std::move(what),
               {},
               std::nullopt};
}

Result<json::object> ParseObject(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error || !value.is_object()) return Fail(BadAnswer("not a JSON object"));
  return std::move(value).as_object();
}

// Fields of an answer. Each gives its default when absent and notes a wrong type.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}
  std::string Text(std::string_view name) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr || value->is_null()) return {};
    if (!value->is_string()) return Bad(name), std::string();
    return std::string(value->get_string());
  }
  std::optional<int64_t> Number(std::string_view name) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    boost::system::error_code error;
    auto number = value->to_number<int64_t>(error);
    if (error) return Bad(name), std::nullopt;
    return number;
  }
  bool Flag(std::string_view name) {
    const json::value* value = object_.if_contains(name);
    if (value == nullptr) return false;
    if (!value->is_bool()) return Bad(name), false;
    return value->get_bool();
  }
  Result<void> Check() const {
    if (bad_.empty()) return {};
    return Fail(BadAnswer("\"" + bad_ + "\" has the wrong type"));
  }

 private:
  void Bad(std::string_view name) {
    if (bad_.empty()) bad_ = name;
  }
  const json::object& object_;
  std::string bad_;
};

Error ErrorOf(int status, std::string_view body) {
  auto object = ParseObject(body);
  if (object) {
    Reader reader(*object);
    auto code = ErrorCodeFromWire(reader.Text("code"));
    std::string message = reader.Text("message");
    if (code.has_value() && reader.Check()) {
      return Error{*code, std::move(message), reader.Text("errno"), std::nullopt};
    }
  }
  return BadAnswer(fmt::format("status {} without a known error code", status));
}

json::object ToJson(const ExecRequest& request) {
  json::object object;
  if (!request.id.empty()) object["id"] = request.id;
  if (request.command.has_value()) {
    object["command"] = *request.command;
  } else {
    object["argv"] = json::array(request.argv.begin(), request.argv.end());
  }
  if (!request.cwd.empty()) object["cwd"] = request.cwd;
  json::object env;
  for (const auto& [name, value] : request.env) env[name] = value;
  object["env"] = std::move(env);
  object["stdin"] = request.stdin_pipe ? "pipe" : "none";
  if (request.timeout.has_value()) object["timeout_ms"] = request.timeout->count();
  if (request.head_bytes.has_value()) object["head_bytes"] = *request.head_bytes;
  if (request.tail_bytes > 0) object["tail_bytes"] = request.tail_bytes;
  object["on_output_limit"] =
      request.on_output_limit == OutputLimitAction::kKill ? "kill" : "discard";
  object["on_disconnect"] = request.on_disconnect == DisconnectAction::kKill ? "kill" : "continue";
  return object;
}

std::string ExecPath(std::string_view id, std::string_view rest) {
  return fmt::format("{}/{}{}", guest::kPathExecs, http::EncodeQueryValue(id), rest);
}

}  // namespace

GuestConnection::GuestConnection(GuestClient& client,
                                 std::unique_ptr<http::ClientConnection> connection)
    : client_(&client), connection_(std::move(connection)) {}
GuestConnection::GuestConnection(GuestConnection&&) noexcept = default;
GuestConnection::~GuestConnection() {
  if (connection_ && connection_->reusable() && client_->idle_.size() < kMaxIdle) {
    client_->idle_.push_back(std::move(connection_));
  }
}

GuestClient::GuestClient(std::unique_ptr<net::Dialer> dialer, std::string token, uint64_t fence)
    : dialer_(std::move(dialer)), token_(std::move(token)), fence_(fence) {}
GuestClient::~GuestClient() = default;

Task<Result<GuestConnection>> GuestClient::Borrow(Until until) {
  if (!idle_.empty()) {
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    co_return GuestConnection(*this, std::move(connection));
  }
  CAISSON_CO_ASSIGN(net::StreamPtr stream, co_await dialer_->Dial(std::move(until)));
  co_return GuestConnection(*this, std::make_unique<http::ClientConnection>(std::move(stream)));
}

http::RequestHead GuestClient::Head(std::string method, std::string target,
                                    std::string content_type, Until until) const {
  http::RequestHead head{std::move(method), std::move(target), {}};
  head.headers.Add("Host", "guest");
  head.headers.Add("Authorization", "Bearer " + token_);
  if (head.method != "GET") head.headers.Add("Caisson-Fence", fmt::to_string(fence_));
  if (!content_type.empty()) head.headers.Add("Content-Type", std::move(content_type));
  if (!until.deadline.never()) {
    auto left = std::chrono::duration_cast<Millis>(until.deadline.time() -
                                                   std::chrono::steady_clock::now());
    auto bounded = std::clamp<int64_t>(left.count(), 1, guest::kMaxDeadlineMs);
    head.headers.Add("Caisson-Deadline-Ms", fmt::to_string(bounded));
  }
  return head;
}

Task<Result<GuestClient::Answer>> GuestClient::Call(std::string method, std::string target,
                                                    std::string content_type, std::string body,
                                                    Until until) {
  CAISSON_CO_ASSIGN(GuestConnection connection, co_await Borrow(until));
  http::RequestHead head =
      Head(std::move(method), std::move(target), std::move(content_type), until);
  CAISSON_CO_ASSIGN(http::ResponseHead answer,
                    co_await connection->Send(std::move(head), body, until));
  if (answer.status >= 400) {
    CAISSON_CO_ASSIGN(std::string text, co_await connection->ReadWholeBody(kMaxErrorBytes, until));
    co_return Fail(ErrorOf(answer.status, text));
  }
  co_return Answer{std::move(answer), std::move(connection)};
}

Task<Result<std::string>> GuestClient::CallJson(std::string method, std::string target,
                                                std::string body, Until until) {
  CAISSON_CO_ASSIGN(Answer answer,
                    co_await Call(std::move(method), std::move(target),
                                  std::string(guest::kMediaJson), std::move(body), until));
  co_return co_await answer.connection->ReadWholeBody(guest::kMaxJsonBytes, until);
}

Task<Result<GuestHello>> GuestClient::Hello(Until until) {
  CAISSON_CO_ASSIGN(std::string text,
                    co_await CallJson("GET", std::string(guest::kPathHello), "", until));
  CAISSON_CO_ASSIGN(json::object object, ParseObject(text));
  Reader reader(object);
  GuestHello hello;
  auto protocol = reader.Number("protocol").value_or(0);
  auto oldest = reader.Number("min_protocol").value_or(0);
  hello.build = reader.Text("build");
  hello.arch = reader.Text("arch");
  hello.work_dir = reader.Text("work_dir");
  hello.pid1 = reader.Flag("pid1");
  hello.uid_separation = reader.Flag("uid_separation");
  CAISSON_CO_TRY(reader.Check());
  if (const json::value* features = object.if_contains("features");
      features != nullptr && features->is_array()) {
    for (const json::value& feature : features->get_array()) {
      if (feature.is_string()) hello.features.emplace_back(feature.get_string());
    }
  }
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

Task<Result<ExecStream>> GuestClient::StartExec(ExecRequest request, Until until) {
  CAISSON_CO_ASSIGN(Answer answer, co_await Call("POST", std::string(guest::kPathExecs),
                                                 std::string(guest::kMediaJson),
                                                 json::serialize(ToJson(request)), until));
  if (answer.head.headers.Find("content-type") != guest::kMediaRecords) {
    co_return Fail(BadAnswer("an exec did not answer with records"));
  }
  co_return ExecStream(std::move(answer.connection));
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
      co_await CallJson("POST", ExecPath(exec_id, "/signal"), json::serialize(body), until));
  co_return Result<void>();
}

Task<Result<std::optional<ExecStream::Record>>> ExecStream::Next(Until until) {
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
        if (record.type == guest::RecordType::kKeepAlive) continue;
        if (record.type == guest::RecordType::kStarted) {
          CAISSON_CO_ASSIGN(json::object started, ParseObject(record.payload));
          id_ = Reader(started).Text("id");
        }
        if (record.type == guest::RecordType::kExit) {
          ended_ = true;
          // Reads the end of the message too, so that the connection can be used again.
          CAISSON_CO_ASSIGN(std::string rest, co_await connection_->ReadBody(until));
          if (!rest.empty()) co_return Fail(BadAnswer("bytes follow the exit record"));
        }
        co_return record;
      }
    }
    CAISSON_CO_ASSIGN(std::string more, co_await connection_->ReadBody(until));
    if (more.empty()) {
      co_return Fail(ErrorCode::kConnectionLost, "the exec's stream ended without an exit record");
    }
    buffer_ += more;
  }
}

Result<ExecExit> ExecStream::ParseExit(std::string_view payload) {
  CAISSON_ASSIGN(json::object object, ParseObject(payload));
  Reader reader(object);
  ExecExit exit;
  if (auto code = reader.Number("code")) exit.code = static_cast<int>(*code);
  exit.signal = reader.Text("signal");
  auto reason = guest::ExitReasonFromName(reader.Text("reason"));
  if (!reason.has_value()) return Fail(BadAnswer("an exit record has no known reason"));
  exit.reason = *reason;
  exit.duration = Millis(reader.Number("duration_ms").value_or(0));
  exit.cpu = Millis(reader.Number("cpu_ms").value_or(0));
  exit.max_rss_bytes = static_cast<uint64_t>(reader.Number("max_rss_bytes").value_or(0));
  exit.stdout_bytes = static_cast<uint64_t>(reader.Number("stdout_bytes").value_or(0));
  exit.stderr_bytes = static_cast<uint64_t>(reader.Number("stderr_bytes").value_or(0));
  exit.still_running = static_cast<uint32_t>(reader.Number("still_running").value_or(0));
  if (const json::value* truncated = object.if_contains("truncated");
      truncated != nullptr && truncated->is_object()) {
    Reader flags(truncated->get_object());
    exit.stdout_truncated = flags.Flag("stdout");
    exit.stderr_truncated = flags.Flag("stderr");
  }
  CAISSON_TRY(reader.Check());
  return exit;
}

}  // namespace caisson::sandbox
