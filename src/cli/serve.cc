// caisson serve: the server.
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "api/problem.h"
#include "api/router.h"
#include "base/syscall.h"
#include "cli/command.h"
#include "cli/runtime_dir.h"
#include "http/connector.h"
#include "http/server.h"
#include "runtime/worker.h"
#include "sandbox/backends/local/local_backend.h"
#include "sandbox/manager.h"
#include "store/sqlite/sqlite_store.h"

namespace caisson::cli {
namespace {

using sandbox::local::LauncherClient;
using sandbox::local::LocalBackend;

constexpr Millis kDrainTime{20'000};
constexpr Millis kStartTime{30'000};

struct ServeOptions {
  std::string listen = "127.0.0.1:8080";
  std::string data_dir;
  std::string runtime_dir;  // empty: RuntimeDirOf(data_dir)
  bool insecure = false;
  bool ephemeral = false;
};

struct ListenAddress {
  std::string address;
  uint16_t port = 0;
};

Result<ListenAddress> ParseListen(const std::string& text, bool insecure) {
  size_t colon = text.rfind(':');
  ListenAddress listen;
  if (colon != std::string::npos) {
    listen.address = text.substr(0, colon);
    if (listen.address.starts_with('[') && listen.address.ends_with(']')) {
      listen.address = listen.address.substr(1, listen.address.size() - 2);
    }
    auto parsed = std::from_chars(text.data() + colon + 1, text.data() + text.size(), listen.port);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size())
      colon = std::string::npos;
  }
  if (colon == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--listen \"{}\" is not ADDRESS:PORT, e.g. 127.0.0.1:8080", text));
  }
  bool loopback = listen.address.starts_with("127.") || listen.address == "::1";
  if (!loopback && !insecure) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--listen {} is reachable by others, and there is no authentication yet; "
                    "use a loopback address, or say --insecure if you must",
                    text));
  }
  return listen;
}

std::string DefaultDataDir() {
  if (const char* dir = std::getenv("CAISSON_DATA_DIR")) return dir;
  if (::geteuid() == 0) return "/var/lib/caisson";
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "/tmp" : home) + "/.local/share/caisson";
}

Result<void> PrepareDataDir(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error && ::chmod(dir.c_str(), 0700) == 0 && ::access(dir.c_str(), W_OK | X_OK) == 0)
    return {};
  return Fail(
      ErrorCode::kDataDirUnusable,
      fmt::format("the data directory {} cannot be written; choose another with --data-dir", dir),
      error ? error.message() : ErrnoName(errno));
}

std::optional<std::string> FromEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

http::ConnectorSettings ConnectorFromEnvironment() {
  auto any = [](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (auto value = FromEnvironment(name)) return *value;
    }
    return std::string();
  };
  return {any({"HTTPS_PROXY", "https_proxy"}), any({"NO_PROXY", "no_proxy"}),
          any({"CAISSON_CA_FILE", "SSL_CERT_FILE"})};
}

// Everything that serves, wired and in the order of its life.
class Serving {
 public:
  Serving(net::Loop& loop, Host& host, const ServeOptions& options)
      : loop_(loop), host_(host), options_(options) {}

  Task<Result<void>> Run() {
    auto started = co_await Start();
    if (started) {
      fmt::print("caisson {} serves http://{} (data in {})\n", CAISSON_VERSION,
                 fmt::format("{}:{}", address_.address, server_->port()), options_.data_dir);
      std::fflush(stdout);
      started = co_await WaitForSignal();
    }
    auto stopped = co_await Stop();
    co_return started ? stopped : started;
  }

 private:
  Until Soon() const { return Until(Deadline::After(host_.clock, kStartTime)); }

  Task<Result<void>> Start() {
    CAISSON_CO_ASSIGN(address_, ParseListen(options_.listen, options_.insecure));
    CAISSON_CO_TRY(PrepareDataDir(options_.data_dir));
    // Before anything is touched that another server may be using.
    CAISSON_CO_ASSIGN(store_,
                      store::sqlite::OpenSqliteStore({options_.data_dir + "/caisson.db", true},
                                                     host_.clock, host_.random));
    CAISSON_CO_ASSIGN(net::Listener listener,
                      net::ListenTcp(loop_, address_.address, address_.port));
    LauncherClient::Mode mode =
        options_.ephemeral ? LauncherClient::Mode::kEphemeral : LauncherClient::Mode::kKeep;
    std::string runtime_dir = options_.runtime_dir;
    if (runtime_dir.empty()) {
      CAISSON_CO_ASSIGN(runtime_dir, RuntimeDirOf(options_.data_dir));
    }
    CAISSON_CO_ASSIGN(
        backend_,
        LocalBackend::Start(loop_, host_.random,
                            {runtime_dir, host_.own_directory + "/caisson-launcher", mode}));
    manager_.emplace(loop_, *store_, *backend_, metrics_, host_.clock, host_.random);
    CAISSON_CO_TRY(co_await manager_->Recover(Soon()));
    manager_->StartReaper();
    connector_.emplace(loop_, resolver_, ConnectorFromEnvironment());
    worker_.emplace(loop_, *store_, *manager_, *connector_, FromEnvironment, metrics_, host_.clock,
                    host_.random);
    worker_->Start();
    services_.emplace(api::Services{host_.clock, host_.random, *store_, &metrics_, &*manager_,
                                    [this] { worker_->Wake(); }, false});
    server_.emplace(
        loop_, std::move(listener), http::ServerLimits(),
        [this](http::ServerRequest& request, http::ServerResponse& response) {
          return router_.Handle(*services_, request, response);
        },
        [](const Error& error) { return api::ProblemBody(error, ""); });
    server_->Start();
    co_return Result<void>();
  }

  Task<Result<void>> WaitForSignal() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    CAISSON_CO_ASSIGN(
        net::Descriptor watched,
        net::Descriptor::Make(loop_, UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC))));
    co_return co_await watched.WaitReadable(Until(Deadline::Never()));
  }

  // The reverse of Start. What was not started is not there.
  Task<Result<void>> Stop() {
    Deadline deadline = Deadline::After(host_.clock, kDrainTime);
    if (services_) services_->draining = true;
    // Runs first: clients that stream them see their end.
    if (worker_) co_await worker_->Stop(deadline);
    if (server_) co_await server_->Drain(deadline);
    Result<void> result;
    if (manager_) {
      co_await manager_->Stop();
      if (options_.ephemeral) result = co_await EndSandboxes();
    }
    if (backend_) {
      auto stopped = co_await backend_->Stop(Soon());
      if (result) result = std::move(stopped);
    }
    co_return result;
  }

  Task<Result<void>> EndSandboxes() {
    CAISSON_CO_ASSIGN(auto owned, co_await store_->LiveSandboxes());
    for (store::Store::Owned& one : owned) {
      CAISSON_CO_TRY(
          co_await manager_->Delete(std::move(one.scope), one.sandbox.id, std::nullopt, Soon()));
    }
    co_return Result<void>();
  }

  net::Loop& loop_;
  Host& host_;
  ServeOptions options_;
  ListenAddress address_;
  api::Router router_;
  telemetry::Metrics metrics_;
  net::Resolver resolver_;
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<LocalBackend> backend_;
  std::optional<sandbox::Manager> manager_;
  std::optional<http::Connector> connector_;
  std::optional<runtime::Worker> worker_;
  std::optional<api::Services> services_;
  std::optional<http::Server> server_;
};

int RunServe(Host& host, const ServeOptions& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  net::Loop loop(host.clock);
  Serving serving(loop, host, options);
  auto result = net::RunUntilDone(loop, serving.Run());
  if (result) return kExitOk;
  PrintError(result.error());
  return kExitFailed;
}

}  // namespace

void AddServe(CLI::App& app, Host& host, int& exit_code) {
  auto options = std::make_shared<ServeOptions>();
  options->data_dir = DefaultDataDir();
  auto* command = app.add_subcommand("serve", "Run the server");
  command->add_option("--listen", options->listen, "ADDRESS:PORT to serve; port 0 takes a free one")
      ->capture_default_str();
  command
      ->add_option("--data-dir", options->data_dir, "where everything is kept (CAISSON_DATA_DIR)")
      ->capture_default_str();
  command->add_option("--runtime-dir", options->runtime_dir,
                      "sockets of live sandboxes; a short path, best in memory (default: a "
                      "directory of /run, /dev/shm or the data directory)");
  command->add_flag("--insecure", options->insecure,
                    "serve an address that others can reach, without authentication");
  command->add_flag("--ephemeral", options->ephemeral, "end all sandboxes when the server stops");
  command->callback([options, &host, &exit_code] { exit_code = RunServe(host, *options); });
}

}  // namespace caisson::cli
