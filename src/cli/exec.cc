// caisson exec: one command in a fresh sandbox, without a server.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/syscall.h"
#include "cli/command.h"
#include "cli/runtime_dir.h"
#include "net/task_group.h"
#include "sandbox/backends/local/local_backend.h"
#include "sandbox/backends/local/plan_builder.h"
#include "sandbox/guest_client.h"

namespace caisson::cli {
namespace {

using sandbox::ExecExit;
using sandbox::ExecStream;
using sandbox::GuestClient;

struct ExecOptions {
  std::vector<std::string> command;
  std::string rootfs;
  std::string profile = "default";
  std::string timeout;
  std::string cwd;
  std::vector<std::string> env;
  std::string memory;
  std::string disk;
  double cpus = 0;
  uint32_t pids = 0;
};

// "1.5s", "500ms", "2m", "1h"; a bare number is seconds.
Result<Millis> ParseDuration(const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
  double number = 0;
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(parsed.ptr, text.data() + text.size());
  if (unit.empty()) unit = "s";
  for (const auto& [name, factor] : kUnits) {
    if (parsed.ec == std::errc() && unit == name && number * factor >= 1 &&
        number * factor < 1e12) {
      return Millis(static_cast<int64_t>(number * factor));
    }
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--timeout \"{}\" is not a duration such as 10, 1.5s, 500ms, 2m or 1h", text));
}

// "512M", "1G", "65536".
Result<uint64_t> ParseSize(const std::string& option, const std::string& text) {
  uint64_t number = 0;
  auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(parsed.ptr, text.data() + text.size());
  int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (parsed.ec != std::errc() || shift < 0 || number == 0 || number > (1ull << 40) >> shift) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} \"{}\" is not a size such as 65536, 64K, 512M or 1G", option, text));
  }
  return number << shift;
}

Result<sandbox::SandboxSpec> MakeSpec(const ExecOptions& options) {
  CAISSON_ASSIGN(sandbox::SandboxSpec spec, sandbox::BuiltInProfile(options.profile));
  spec.rootfs = options.rootfs;
  if (!options.memory.empty()) {
    CAISSON_ASSIGN(spec.resources.memory_bytes, ParseSize("--memory", options.memory));
  }
  if (!options.disk.empty()) {
    CAISSON_ASSIGN(spec.resources.disk_bytes, ParseSize("--disk", options.disk));
  }
  if (options.cpus > 0) spec.resources.cpus = options.cpus;
  if (options.pids > 0) spec.resources.pids = options.pids;
  for (const std::string& item : options.env) {
    size_t equals = item.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("--env \"{}\" is not NAME=value", item));
    }
    spec.env[item.substr(0, equals)] = item.substr(equals + 1);
  }
  return spec;
}

// A block of host uids that no other `caisson exec` has, above those of servers. It is held by an
// abstract socket's name: the kernel frees it however this process ends.
class UidBlock {
 public:
  static Result<UidBlock> Take(Random& random) {
    constexpr uint32_t kFirst = 1u << 30;
    constexpr uint32_t kBlocks = (1u << 30) / sandbox::local::kIdsPerSandbox;
    for (int attempt = 0; attempt < 64; attempt++) {
      auto block = static_cast<uint32_t>(random.Below(kBlocks));
      UidBlock taken;
      taken.base_ = kFirst + block * sandbox::local::kIdsPerSandbox;
      taken.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::string name = fmt::format("caisson-uids-{}", taken.base_);
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      if (::bind(taken.socket_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0)
        return taken;
    }
    return Fail(ErrorCode::kOverloaded, "no block of host uids is free");
  }
  uint32_t base() const { return base_; }

 private:
  UniqueFd socket_;
  uint32_t base_ = 0;
};

// Made at the start, gone at the end; what a killed `caisson exec` left is removed by the next one.
// The owner holds a lock on it while it lives.
class TemporaryDirectory {
 public:
  static Result<std::unique_ptr<TemporaryDirectory>> Make() {
    RemoveAbandoned();
    std::string path = Parent() + "/" + kPrefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return Fail(ErrnoError(errno, "make a directory in " + Parent()));
    }
    CAISSON_ASSIGN(UniqueFd lock, OpenFile(path, O_RDONLY | O_DIRECTORY));
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return Fail(ErrnoError(errno, "lock " + path));
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(path, std::move(lock)));
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  static std::string Parent() {
    std::string base = RuntimeBase();
    return base.empty() ? "/tmp" : base;
  }
  static constexpr const char* kPrefix = "caisson-exec-";
  TemporaryDirectory(std::string path, UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  static void RemoveAbandoned() {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(Parent(), error)) {
      if (!entry.path().filename().string().starts_with(kPrefix)) continue;
      auto dir = OpenFile(entry.path(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      struct stat info{};
      // It may be everybody's: only what is our own is touched.
      if (!dir || ::fstat(dir->get(), &info) != 0 || info.st_uid != ::geteuid()) continue;
      if (::flock(dir->get(), LOCK_EX | LOCK_NB) != 0) continue;
      // A fresh one is not locked yet for a moment.
      if (std::chrono::system_clock::now().time_since_epoch() -
              std::chrono::seconds(info.st_mtime) <
          std::chrono::seconds(2)) {
        continue;
      }
      std::filesystem::remove_all(entry.path(), error);
    }
  }

  std::string path_;
  UniqueFd lock_;
};

// Standard input or output, which may be a terminal, a pipe that others share, or a file.
class StandardStream {
 public:
  StandardStream(net::Loop& loop, int fd) : fd_(fd) {
    struct stat info{};
    // Files are always ready, and cannot be watched.
    if (::fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return;
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (auto watched = net::Descriptor::Watch(loop, std::move(copy)))
      watched_.emplace(std::move(*watched));
  }
  // Empty at the end, and when there is nothing to read from.
  Task<Result<std::string>> Read(std::stop_token stop) {
    if (watched_.has_value()) {
      CAISSON_CO_TRY(co_await watched_->WaitReadable(Until(Deadline::Never(), std::move(stop))));
    }
    std::string data(64 * 1024, '\0');
    for (;;) {
      ssize_t got = ::read(fd_, data.data(), data.size());
      if (got < 0 && errno == EINTR) continue;
      data.resize(got > 0 ? static_cast<size_t>(got) : 0);
      co_return data;
    }
  }
  Task<Result<void>> Write(std::string_view data) {
    while (!data.empty()) {
      std::string_view piece = data;
      if (watched_.has_value()) {
        CAISSON_CO_TRY(co_await watched_->WaitWritable(Until(Deadline::Never())));
        // A writable pipe takes this much without blocking; more might not fit.
        piece = data.substr(0, 4096);
      }
      ssize_t written = ::write(fd_, piece.data(), piece.size());
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written < 0) co_return Fail(ErrnoError(errno, "write to standard output"));
      data.remove_prefix(static_cast<size_t>(written));
    }
    co_return Result<void>();
  }

 private:
  int fd_;
  std::optional<net::Descriptor> watched_;
};

int SignalNumber(const std::string& name) {
  for (int signal = 1; signal < NSIG; signal++) {
    const char* abbreviation = ::sigabbrev_np(signal);
    if (abbreviation != nullptr && name == abbreviation) return signal;
  }
  return 0;
}

// The command's own code; 128+n for signals; 124 for the timeout.
int ExitCodeOf(const ExecExit& exit) {
  if (exit.reason == guest::ExitReason::kTimeout) return kExitTimeout;
  if (exit.code.has_value()) return *exit.code;
  int signal = SignalNumber(exit.signal);
  return signal > 0 ? 128 + signal : kExitRefused;
}

int ExitCodeOf(const Error& error) {
  if (error.code == ErrorCode::kCommandNotFound) return kExitNotFound;
  if (error.code == ErrorCode::kCommandNotExecutable) return kExitNotExecutable;
  if (error.code == ErrorCode::kInvalidArgument) return kExitUsage;
  return kExitRefused;
}

// One run of the command, with its streams and signals connected to this process's.
class Session {
 public:
  Session(net::Loop& loop, GuestClient& client, const Clock& clock)
      : loop_(loop), client_(client), clock_(clock) {}

  Task<Result<int>> Run(sandbox::ExecRequest request) {
    CAISSON_CO_ASSIGN(ExecStream stream, co_await client_.StartExec(std::move(request), Soon()));
    StandardStream out(loop_, STDOUT_FILENO);
    StandardStream err(loop_, STDERR_FILENO);
    auto result = co_await Pump(stream, out, err);
    tasks_.RequestStop();
    co_await tasks_.Join();
    co_return result;
  }

 private:
  Until Soon() const { return Until(Deadline::After(clock_, Millis(30'000))); }

  Task<Result<int>> Pump(ExecStream& stream, StandardStream& out, StandardStream& err) {
    for (;;) {
      // The guest sends something every ten seconds while it lives.
      Until patience(Deadline::After(clock_, Millis(6 * guest::kKeepAliveMs)));
      CAISSON_CO_ASSIGN(auto record, co_await stream.Next(patience));
      if (!record.has_value()) {
        co_return Fail(ErrorCode::kOutcomeUnknown, "the command ended without an exit record");
      }
      switch (record->type) {
        case guest::RecordType::kStarted:
          tasks_.Start(ForwardStdin(stream.id()));
          tasks_.Start(ForwardSignals(stream.id()));
          break;
        case guest::RecordType::kStdout:
        case guest::RecordType::kStderr: {
          StandardStream& to = record->type == guest::RecordType::kStdout ? out : err;
          auto written = co_await to.Write(record->payload);
          // A reader that has enough (head, less) ends a pipeline by closing it.
          if (!written) co_return 128 + SIGPIPE;
          break;
        }
        case guest::RecordType::kExit: {
          CAISSON_CO_ASSIGN(ExecExit exit, ExecStream::ParseExit(record->payload));
          co_return Report(exit);
        }
        default:
          break;
      }
    }
  }

  // What an exit code alone does not say goes to standard error.
  static Result<int> Report(const ExecExit& exit) {
    if (exit.reason == guest::ExitReason::kLost) {
      return Fail(ErrorCode::kOutcomeUnknown, "the end of the command was not seen");
    }
    if (exit.reason == guest::ExitReason::kTimeout) {
      fmt::print(stderr, "caisson: timeout: the command was killed with all its processes\n");
    } else if (exit.reason == guest::ExitReason::kOom) {
      fmt::print(stderr, "caisson: oom: the command reached the sandbox's memory limit\n");
    }
    return ExitCodeOf(exit);
  }

  Task<void> ForwardStdin(std::string id) {
    StandardStream in(loop_, STDIN_FILENO);
    for (;;) {
      auto data = co_await in.Read(tasks_.stop());
      if (!data) co_return;  // stopped: the command has ended
      bool eof = data->empty();
      Until until(Deadline::Never(), tasks_.stop());
      auto written = co_await client_.WriteStdin(id, std::move(*data), eof, until);
      if (!written || eof) co_return;  // nobody reads any more
    }
  }

  // The first asks the command to end, in its own way; the third does not ask.
  Task<void> ForwardSignals(std::string id) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    auto watched = net::Descriptor::Make(
        loop_, UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)));
    if (!watched) co_return;
    for (int count = 1;; count++) {
      if (!co_await watched->WaitReadable(Until(Deadline::Never(), tasks_.stop()))) co_return;
      signalfd_siginfo info{};
      if (::read(watched->fd(), &info, sizeof info) != sizeof info) continue;
      std::string name = count >= 3 ? "KILL" : info.ssi_signo == SIGINT ? "INT" : "TERM";
      (void)co_await client_.Signal(id, name, count >= 3, Soon());
    }
  }

  net::Loop& loop_;
  GuestClient& client_;
  const Clock& clock_;
  net::TaskGroup tasks_;
};

Task<Result<int>> RunIn(net::Loop& loop, Host& host, sandbox::local::LocalBackend& backend,
                        sandbox::InstanceRef ref, sandbox::SandboxSpec spec,
                        sandbox::ExecRequest request) {
  Until until(Deadline::After(host.clock, Millis(30'000)));
  CAISSON_CO_ASSIGN(sandbox::Acquired acquired,
                    co_await backend.Acquire(std::move(ref), std::move(spec), until));
  GuestClient client(std::move(acquired.dialer), std::move(acquired.token), 1, host.clock);
  Session session(loop, client, host.clock);
  co_return co_await session.Run(std::move(request));
}

Task<Result<int>> RunInSandbox(net::Loop& loop, Host& host, sandbox::local::LocalBackend& backend,
                               const ExecOptions& options, sandbox::SandboxSpec spec) {
  sandbox::ExecRequest request;
  request.argv = options.command;
  request.cwd = options.cwd;
  request.stdin_pipe = true;
  request.on_disconnect = sandbox::DisconnectAction::kKill;
  if (!options.timeout.empty()) {
    CAISSON_CO_ASSIGN(request.timeout, ParseDuration(options.timeout));
  }
  sandbox::InstanceRef ref;
  ref.id = SandboxId::Make(host.clock, host.random);
  std::optional<UidBlock> uids;
  if (backend.needs_uids()) {
    CAISSON_CO_ASSIGN(uids, UidBlock::Take(host.random));
    ref.uid_base = uids->base();
  }
  auto result = co_await RunIn(loop, host, backend, ref, std::move(spec), std::move(request));
  // Also after a failed start: something of it may be there.
  CAISSON_CO_ASSIGN(
      sandbox::Termination end,
      co_await backend.Terminate(ref, Until(Deadline::After(host.clock, Millis(30'000)))));
  if (result && !end.complete()) {
    co_return Fail(ErrorCode::kTerminationUnconfirmed, end.pending_reason);
  }
  co_return result;
}

Task<Result<int>> RunWithBackend(net::Loop& loop, Host& host, const ExecOptions& options,
                                 sandbox::SandboxSpec spec, const std::string& state_dir) {
  CAISSON_CO_ASSIGN(auto backend, sandbox::local::LocalBackend::Start(
                                      loop, host.random,
                                      {state_dir, host.own_directory + "/caisson-launcher",
                                       sandbox::local::LauncherClient::Mode::kEphemeral}));
  auto result = co_await RunInSandbox(loop, host, *backend, options, std::move(spec));
  auto stopped = co_await backend->Stop(Until(Deadline::After(host.clock, Millis(30'000))));
  if (result && !stopped) co_return Fail(stopped.error());
  co_return result;
}

Result<int> RunExec(Host& host, const ExecOptions& options) {
  CAISSON_ASSIGN(sandbox::SandboxSpec spec, MakeSpec(options));
  CAISSON_ASSIGN(auto directory, TemporaryDirectory::Make());
  // Blocked before any thread or child exists: they are read from a descriptor.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  net::Loop loop(host.clock);
  return net::RunUntilDone(loop,
                           RunWithBackend(loop, host, options, std::move(spec), directory->path()));
}

}  // namespace

void AddExec(CLI::App& app, Host& host, int& exit_code) {
  auto options = std::make_shared<ExecOptions>();
  auto* command =
      app.add_subcommand("exec", "Run one command in a fresh sandbox that leaves nothing behind");
  command->footer(
      "Standard input, output and error are the command's; so is the exit code (128+n when signal "
      "n\n"
      "ended it, 124 for the timeout, 125 when Caisson could not run it, 126 and 127 as in a "
      "shell).\n"
      "Example: tar c . | caisson exec --timeout 10s -- sh -c 'tar x && make test'");
  command->add_option("--rootfs", options->rootfs,
                      "directory to use as root, read-only (default: the host's /usr)");
  command->add_option("--profile", options->profile, "sandbox profile: default, default-rootless")
      ->capture_default_str();
  command->add_option("--timeout", options->timeout,
                      "kill the command after this time (10, 1.5s, 500ms, 2m, 1h)");
  command->add_option("--cwd", options->cwd, "working directory (default: /workspace)");
  command->add_option("--env", options->env, "NAME=value for the command; may be repeated");
  command->add_option("--memory", options->memory, "memory limit, e.g. 512M");
  command->add_option("--disk", options->disk, "limit of all that is written, e.g. 1G");
  command->add_option("--cpus", options->cpus, "cpu limit in cores, e.g. 0.5");
  command->add_option("--pids", options->pids, "limit of processes and threads");
  command->add_option("command", options->command, "the command and its arguments, after --")
      ->required();
  command->callback([options, &host, &exit_code] {
    auto result = RunExec(host, *options);
    if (!result) PrintError(result.error());
    exit_code = result ? *result : ExitCodeOf(result.error());
  });
}

}  // namespace caisson::cli
