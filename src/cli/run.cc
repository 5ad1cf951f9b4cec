// caisson run: an agent does a task in a sandbox, shown as it happens.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/syscall.h"
#include "cli/api_client.h"
#include "cli/command.h"
#include "cli/event_printer.h"
#include "http/message.h"
#include "json/reader.h"
#include "net/loop.h"

namespace caisson::cli {
namespace {

constexpr size_t kMaxDownload = 64 << 20;

struct RunOptions {
  std::string task;
  std::string agent;
  std::string model;
  std::string base_url;
  std::vector<std::string> files;
  std::vector<std::string> gets;
  std::string server = ApiClient::DefaultUrl();
  bool json = false;
};

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

constexpr std::string_view kPrompt =
    "You are a careful assistant with a sandbox: a Linux machine of your own without network. Use "
    "the tools to look "
    "at files and run commands; do not guess what you can check. Files you are given lie in the "
    "working directory. "
    "Write results that are asked for into files there, and end with a short summary.";

// The provider that the environment asks for. The key itself stays where the server is: the
// definition has only the variable's name.
Result<json::object> ProviderFromEnvironment(const RunOptions& options) {
  std::string url = options.base_url.empty() ? Env("OPENAI_BASE_URL") : options.base_url;
  bool openai = !Env("OPENAI_API_KEY").empty();
  if (openai || !url.empty()) {
    json::object provider{{"protocol", "openai"}};
    if (!url.empty()) provider["base_url"] = url;
    if (openai) provider["api_key_env"] = "OPENAI_API_KEY";
    std::string model = options.model.empty() ? Env("OPENAI_MODEL") : options.model;
    provider["model"] = model.empty() ? "gpt-4o-mini" : model;
    return provider;
  }
  if (!Env("ANTHROPIC_API_KEY").empty()) {
    std::string model = options.model.empty() ? Env("ANTHROPIC_MODEL") : options.model;
    return json::object{{"protocol", "anthropic"},
                        {"api_key_env", "ANTHROPIC_API_KEY"},
                        {"model", model.empty() ? "claude-sonnet-4-5" : model}};
  }
  return Fail(
      ErrorCode::kMissingKey,
      "no model: set OPENAI_API_KEY (and OPENAI_BASE_URL for a compatible server) or "
      "ANTHROPIC_API_KEY, name "
      "one with --agent, or start `caisson demo-model` and give its address with --base-url");
}

class FileBody final : public http::BodySource {
 public:
  explicit FileBody(UniqueFd fd) : fd_(std::move(fd)) {}
  Task<Result<std::string_view>> Next(Until) override {
    ssize_t got = ::read(fd_.get(), buffer_.data(), buffer_.size());
    if (got < 0) co_return Fail(ErrnoError(errno, "read a file"));
    co_return std::string_view(buffer_.data(), static_cast<size_t>(got));
  }

 private:
  UniqueFd fd_;
  std::string buffer_ = std::string(256 * 1024, '\0');
};

class Runner {
 public:
  Runner(net::Loop& loop, Host& host, RunOptions options)
      : host_(host),
        options_(std::move(options)),
        api_(loop, host.clock, options_.server),
        printer_(options_.json) {}

  Task<Result<int>> Run() {
    if (options_.agent.empty()) CAISSON_CO_TRY(co_await DefineAgent());
    CAISSON_CO_ASSIGN(json::object session,
                      co_await api_.Call("POST", "/v1/sessions",
                                         json::Serialize(json::object{{"agent", options_.agent}})));
    session_ = json::ObjectReader(session).String("id").value_or("");
    Note(fmt::format("[session {}; agent {}]", session_, options_.agent));
    if (!options_.files.empty()) {
      CAISSON_CO_TRY(co_await OpenSandbox());
      for (const std::string& file : options_.files) CAISSON_CO_TRY(co_await SendFile(file));
    }
    CAISSON_CO_TRY(
        co_await api_.Stream("POST", fmt::format("/v1/sessions/{}/messages", session_),
                             json::Serialize(json::object{{"content", options_.task}}),
                             [this](const auto& event) { return printer_.Print(event); }));
    if (printer_.end().empty()) {
      co_return Fail(
          ErrorCode::kConnectionLost,
          fmt::format(
              "the stream ended before the run; follow it with `caisson events {} --follow`",
              session_));
    }
    if (printer_.end() != "done") co_return kExitFailed;
    if (!options_.gets.empty()) CAISSON_CO_TRY(co_await OpenSandbox());
    for (const std::string& get : options_.gets) CAISSON_CO_TRY(co_await GetFile(get));
    co_return kExitOk;
  }

 private:
  // Not part of the events: goes to standard error when these are printed as JSON.
  void Note(const std::string& text) const {
    fmt::print(options_.json ? stderr : stdout, "{}\n", text);
  }

  Task<Result<void>> DefineAgent() {
    CAISSON_CO_ASSIGN(json::object provider, ProviderFromEnvironment(options_));
    std::string name = "run-" + host_.random.Hex(4);
    provider["name"] = name;
    provider["description"] = "written by `caisson run`";
    CAISSON_CO_TRY(co_await api_.Call("POST", "/v1/providers", json::Serialize(provider)));
    json::object agent{{"name", name},
                       {"description", "written by `caisson run`"},
                       {"provider", name},
                       {"system_prompt", kPrompt}};
    CAISSON_CO_TRY(co_await api_.Call("POST", "/v1/agents", json::Serialize(agent)));
    options_.agent = name;
    co_return Result<void>();
  }

  Task<Result<void>> OpenSandbox() {
    if (!sandbox_.empty()) co_return Result<void>();
    CAISSON_CO_ASSIGN(json::object sandbox,
                      co_await api_.Call("POST", "/v1/sandboxes",
                                         json::Serialize(json::object{{"session_id", session_}})));
    sandbox_ = json::ObjectReader(sandbox).String("id").value_or("");
    co_return Result<void>();
  }

  std::string ContentPath(const std::string& path) const {
    return fmt::format("/v1/sandboxes/{}/files/content?path={}", sandbox_,
                       http::EncodeQueryValue(path));
  }

  Task<Result<void>> SendFile(const std::string& file) {
    CAISSON_CO_ASSIGN(UniqueFd fd, OpenFile(file, O_RDONLY));
    std::string name = std::filesystem::path(file).filename();
    FileBody body(std::move(fd));
    CAISSON_CO_TRY(co_await api_.Upload(ContentPath(name), body));
    Note(fmt::format("[{} is in the sandbox as {}]", file, name));
    co_return Result<void>();
  }

  // "PATH" or "PATH=LOCAL".
  Task<Result<void>> GetFile(const std::string& get) {
    size_t equals = get.find('=');
    std::string path = get.substr(0, equals);
    std::string local = equals == std::string::npos
                            ? std::filesystem::path(path).filename().string()
                            : get.substr(equals + 1);
    CAISSON_CO_ASSIGN(std::string content, co_await api_.Download(ContentPath(path), kMaxDownload));
    CAISSON_CO_ASSIGN(UniqueFd fd, OpenFile(local, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    CAISSON_CO_TRY(WriteAll(fd.get(), content));
    Note(fmt::format("[{} of the sandbox is in {}]", path,
                     std::filesystem::absolute(local).string()));
    co_return Result<void>();
  }

  Host& host_;
  RunOptions options_;
  ApiClient api_;
  EventPrinter printer_;
  std::string session_;
  std::string sandbox_;
};

}  // namespace

void AddRun(CLI::App& app, Host& host, int& exit_code) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Let an agent do a task in a sandbox, and watch");
  command->footer(
      "Needs a server (`caisson serve`). Without --agent, a provider and an agent are written for "
      "this run from\n"
      "OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY; `caisson agents list` shows them. The "
      "keys are read by the\n"
      "server, from its own environment. The run goes on when this command is interrupted.\n"
      "Example: caisson run 'summarise this' --file notes.txt --get summary.md");
  command->add_option("task", options->task, "what to do")->required();
  command->add_option("--agent", options->agent, "an agent that is defined on the server");
  command->add_option("--model", options->model, "model of the agent that is written for this run");
  command->add_option("--base-url", options->base_url,
                      "an OpenAI-compatible server, e.g. http://127.0.0.1:11434/v1");
  command->add_option("--file", options->files,
                      "put this file into the sandbox first; may be repeated");
  command->add_option("--get", options->gets,
                      "fetch this file afterwards: PATH or PATH=LOCAL; may be repeated");
  command->add_option("--server", options->server, "the server's address (CAISSON_URL)")
      ->capture_default_str();
  command->add_flag("--json", options->json, "print events as JSON, one a line");
  command->callback([options, &host, &exit_code] {
    net::Loop loop(host.clock);
    Runner runner(loop, host, *options);
    auto result = net::RunUntilDone(loop, runner.Run());
    if (!result) PrintError(result.error());
    exit_code = result ? *result : kExitFailed;
  });
}

}  // namespace caisson::cli
