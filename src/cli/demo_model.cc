// caisson demo-model: a script in the place of a model, for trying Caisson without one.
//
// It speaks OpenAI's wire protocol on a loopback port, so that everything else is the real thing.
// It knows one task (which installed packages take most space) and says that it is a script.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "cli/command.h"
#include "http/server.h"
#include "json/json.h"
#include "json/reader.h"
#include "net/loop.h"

namespace caisson::cli {
namespace {

// A package a line: KiB, name, purpose; the ten largest of the file in the working directory.
constexpr std::string_view kListPackages =
    R"sh(awk -F': ' '/^Package: /{p=$2} /^Status: /{s=$2} /^Installed-Size: /{z=$2} /^Description: /{d=$2}
/^$/{if (s ~ / installed$/) print z "\t" p "\t" d; p=s=z=d=""}' status | sort -rn | head -n 10)sh";

struct Turn {
  std::string text;
  json::array calls;  // as the protocol has them
};

json::object Call(std::string_view id, std::string_view name, const json::object& arguments) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", json::Serialize(arguments)}}}};
}

// The result of the call with this id, from the conversation.
std::string ResultOf(const json::array& messages, std::string_view id) {
  for (const json::value& message : messages) {
    const json::object* object = message.if_object();
    if (object == nullptr) continue;
    json::ObjectReader reader(*object);
    if (reader.String("tool_call_id") == id) return reader.String("content").value_or("");
  }
  return {};
}

// A Markdown table of what the command printed.
std::string Report(const std::string& listing) {
  std::string report =
      "# The ten largest installed packages\n\n| package | installed size | what it is for "
      "|\n|---|---|---|\n";
  std::istringstream lines(listing);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    size_t first = line.find('\t');
    size_t second = line.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    double mib = std::atof(line.substr(0, first).c_str()) / 1024;
    report += fmt::format("| {} | {:.1f} MiB | {} |\n", line.substr(first + 1, second - first - 1),
                          mib, line.substr(second + 1));
    rows++;
  }
  report += fmt::format(
      "\n{} packages, from the file `status`. Written by the scripted demo model.\n", rows);
  return report;
}

// What the script says next, by what has been answered so far.
Turn NextTurn(const json::array& messages) {
  if (ResultOf(messages, "list").empty()) {
    return {
        "I am a script that plays a model, to show Caisson without one. I look at the file, and at "
        "which of its "
        "packages take most space.\n",
        {Call("look", "ls", {{"path", "."}}),
         Call("list", "execute", {{"command", kListPackages}})}};
  }
  if (ResultOf(messages, "write").empty()) {
    return {"Now I write the report.\n",
            {Call("write", "write_file",
                  {{"file_path", "report.md"}, {"content", Report(ResultOf(messages, "list"))}})}};
  }
  if (ResultOf(messages, "check").empty()) {
    return {"", {Call("check", "read_file", {{"file_path", "report.md"}})}};
  }
  return {
      "The report is in report.md: the ten installed packages that take most space, and what each "
      "is for.\n",
      {}};
}

std::string Chunk(json::object delta, const json::value& finish_reason) {
  json::object choice{{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", finish_reason}};
  json::object chunk{{"id", "chatcmpl-demo"},
                     {"object", "chat.completion.chunk"},
                     {"model", "demo-script"},
                     {"choices", json::array{std::move(choice)}}};
  return "data: " + json::Serialize(chunk) + "\n\n";
}

// The script counts words: it has no tokens.
size_t Words(std::string_view text) {
  size_t count = 0;
  bool inside = false;
  for (char c : text) {
    bool space = c == ' ' || c == '\n' || c == '\t';
    if (!space && !inside) count++;
    inside = !space;
  }
  return count;
}

Task<Result<void>> Answer(http::ServerRequest& request, http::ServerResponse& response) {
  if (request.path() != "/v1/chat/completions" || request.method() != "POST") {
    co_return co_await response.Send(
        404, {{"Content-Type", "application/json"}},
        R"({"error":{"message":"the demo model has only POST /v1/chat/completions"}})");
  }
  CAISSON_CO_ASSIGN(std::string body, co_await request.ReadWholeBody(64 << 20));
  CAISSON_CO_ASSIGN(json::object object, json::ParseObject(body));
  json::ObjectReader reader(object);
  const json::array* messages = reader.Array("messages");
  Turn turn = NextTurn(messages == nullptr ? json::array() : *messages);
  CAISSON_CO_TRY(co_await response.Start(200, {{"Content-Type", "text/event-stream"}}));
  // Word by word, as a model would.
  std::string_view rest = turn.text;
  while (!rest.empty()) {
    size_t cut = std::min(rest.find(' '), rest.size() - 1) + 1;
    CAISSON_CO_TRY(co_await response.Write(Chunk({{"content", rest.substr(0, cut)}}, nullptr)));
    rest.remove_prefix(cut);
    Until pause(Deadline::After(net::Loop::Current()->clock(), Millis(15)), request.stop());
    CAISSON_CO_TRY(co_await net::Loop::Current()->Sleep(pause));
  }
  for (size_t i = 0; i < turn.calls.size(); i++) {
    json::object call = turn.calls[i].as_object();
    call["index"] = i;
    CAISSON_CO_TRY(
        co_await response.Write(Chunk({{"tool_calls", json::array{std::move(call)}}}, nullptr)));
  }
  CAISSON_CO_TRY(co_await response.Write(Chunk({}, turn.calls.empty() ? "stop" : "tool_calls")));
  json::object usage{{"prompt_tokens", Words(body)},
                     {"completion_tokens", Words(turn.text)},
                     {"total_tokens", Words(body) + Words(turn.text)}};
  json::object last{
      {"id", "chatcmpl-demo"}, {"choices", json::array()}, {"usage", std::move(usage)}};
  CAISSON_CO_TRY(
      co_await response.Write("data: " + json::Serialize(last) + "\n\ndata: [DONE]\n\n"));
  co_return co_await response.Finish();
}

Task<Result<void>> Serve(net::Loop& loop, const Clock& clock, uint16_t port) {
  CAISSON_CO_ASSIGN(net::Listener listener, net::ListenTcp(loop, "127.0.0.1", port));
  http::Handler handler = [](http::ServerRequest& request,
                             http::ServerResponse& response) -> Task<void> {
    (void)co_await Answer(request, response);
  };
  http::Server server(loop, std::move(listener), {}, handler,
                      [](const Error& error) { return std::string(error.wire()); });
  server.Start();
  fmt::print("http://127.0.0.1:{}/v1\n", server.port());
  std::fflush(stdout);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  CAISSON_CO_ASSIGN(net::Descriptor watched,
                    net::Descriptor::Make(loop, UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC))));
  auto ended = co_await watched.WaitReadable(Until(Deadline::Never()));
  co_await server.Drain(Deadline::After(clock, Millis(1000)));
  co_return ended;
}

}  // namespace

void AddDemoModel(CLI::App& app, Host& host, int& exit_code) {
  auto port = std::make_shared<uint16_t>(0);
  auto* command = app.add_subcommand(
      "demo-model", "Serve a scripted model on a loopback port, for trying Caisson without one");
  command->add_option("--port", *port, "port to serve; 0 takes a free one")->capture_default_str();
  command->callback([port, &host, &exit_code] {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &signals, nullptr);
    net::Loop loop(host.clock);
    auto result = net::RunUntilDone(loop, Serve(loop, host.clock, *port));
    if (!result) PrintError(result.error());
    exit_code = result ? kExitOk : kExitFailed;
  });
}

}  // namespace caisson::cli
