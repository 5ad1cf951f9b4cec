// Start and idle memory: of the server, of a sandbox, of the guest by itself.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "api.h"
#include "bare.h"
#include "base/syscall.h"
#include "cli/runtime_dir.h"
#include "guest/protocol.h"
#include "json/reader.h"
#include "machine.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr int kStarts = 20;
constexpr int kGuestStarts = 200;
constexpr int kSandboxes = 20;

Task<Result<double>> StartToReady(Bench& bench, std::string data_dir) {
  Stopwatch watch(bench.clock);
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench, std::move(data_dir)));
  Api api(bench, server->port());
  CAISSON_CO_TRY(co_await api.Call("GET", "/ready", ""));
  co_return watch.Ms();
}

Task<Result<void>> Starts(Bench& bench) {
  Samples fresh;
  Samples again;
  Samples bare;
  int rounds = bench.Times(kStarts);
  for (int round = -2; round < rounds; round++) {
    CAISSON_CO_ASSIGN(auto dir, TemporaryDirectory::Make(bench));
    CAISSON_CO_ASSIGN(double first, co_await StartToReady(bench, dir->path()));
    CAISSON_CO_ASSIGN(double second, co_await StartToReady(bench, dir->path()));
    Stopwatch watch(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait({bench.program_dir + "/caisson", "--version"}));
    double version = watch.Ms();
    if (round < 0) continue;
    fresh.Add(first);
    again.Add(second);
    bare.Add(version);
  }
  PrintRow("start to ready, fresh data directory", fresh);
  PrintRow("start to ready, the same directory again", again);
  PrintRow("yardstick: caisson --version", bare);
  co_return Result<void>();
}

// A guest as the launcher starts it, but without a sandbox around it.
class BareGuest {
 public:
  static Result<BareGuest> Start(const Bench& bench, const std::string& dir) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string path = dir + "/guest.sock";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    ::unlink(path.c_str());
    UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener.get(), generic, sizeof address) != 0 || ::listen(listener.get(), 8) != 0) {
      return Fail(ErrnoError(errno, "listen at " + path));
    }
    std::string config = fmt::format(
        R"({{"user":{{"uid":1000,"gid":1000,"name":"user","home":"{}"}},"work_dir":"{}","env":{{}}}})",
        dir, dir);
    CAISSON_ASSIGN(UniqueFd config_file, MakeSealedMemFd("config", config));
    CAISSON_ASSIGN(UniqueFd token, MakeSealedMemFd("token", "token-of-the-bench"));
    SpawnSpec spec;
    spec.program = bench.program_dir + "/caisson-guest";
    spec.arguments = {"serve"};
    spec.environment = {fmt::format("{}=3", guest::kEnvListenFd),
                        fmt::format("{}=4", guest::kEnvTokenFd),
                        fmt::format("{}=5", guest::kEnvConfigFd)};
    spec.descriptors = {{3, listener.get()}, {4, token.get()}, {5, config_file.get()}};
    CAISSON_ASSIGN(ChildProcess child, Spawn(spec));
    BareGuest started(std::move(child));
    started.socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(started.socket_.get(), generic, sizeof address) != 0) {
      return Fail(ErrnoError(errno, "connect to a guest"));
    }
    CAISSON_TRY(WriteAll(started.socket_.get(), "GET /v1/hello HTTP/1.1\r\nHost: guest\r\n\r\n"));
    char answer[512];
    if (::read(started.socket_.get(), answer, sizeof answer) > 12 &&
        std::memcmp(answer, "HTTP/1.1 200", 12) == 0) {
      return started;
    }
    return Fail(ErrorCode::kProtocol, "a guest did not answer");
  }

 private:
  explicit BareGuest(ChildProcess child) : child_(std::move(child)) {}
  ChildProcess child_;
  UniqueFd socket_;
};

Result<void> GuestStarts(const Bench& bench) {
  CAISSON_ASSIGN(auto dir, TemporaryDirectory::Make(bench));
  Samples guest;
  Samples bare;
  int rounds = bench.Times(kGuestStarts);
  for (int round = -10; round < rounds; round++) {
    Stopwatch watch(bench.clock);
    CAISSON_TRY(BareGuest::Start(bench, dir->path()));
    double answered = watch.Ms();
    Stopwatch bare_watch(bench.clock);
    CAISSON_TRY(SpawnAndWait({bench.program_dir + "/caisson-guest", "--version"}));
    double spawned = bare_watch.Ms();
    if (round < 0) continue;
    guest.Add(answered);
    bare.Add(spawned);
  }
  PrintRow("guest: spawn to the answer to /v1/hello", guest);
  PrintRow("yardstick: caisson-guest --version", bare);
  return {};
}

Result<uint64_t> SandboxPssKiB(const ServerProcess& server, const std::string& id) {
  CAISSON_ASSIGN(std::string dir, cli::RuntimeDirOf(server.data_dir()));
  CAISSON_ASSIGN(std::string text, ReadWholeFile(fmt::format("{}/sandboxes/{}.json", dir, id)));
  CAISSON_ASSIGN(json::object instance, json::ParseObject(text));
  auto pid = json::ObjectReader(instance).Int("pid", 1, INT32_MAX);
  if (!pid.has_value()) return Fail(ErrorCode::kNotFound, "a sandbox without a process");
  uint64_t sum = 0;
  for (pid_t process : ProcessTree(static_cast<pid_t>(*pid))) {
    CAISSON_ASSIGN(uint64_t pss, PssKiB(process));
    sum += pss;
  }
  return sum;
}

Task<Result<void>> Memory(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_TRY(co_await api.Call("GET", "/ready", ""));
  CAISSON_CO_TRY(co_await bench.loop.Sleep(Until(Deadline::After(bench.clock, Millis(1000)))));
  CAISSON_CO_ASSIGN(uint64_t rss, StatusKiB(server->pid(), "VmRSS"));
  CAISSON_CO_ASSIGN(uint64_t pss, PssKiB(server->pid()));
  PrintLine(fmt::format("server, idle: {} KiB RSS, {} KiB PSS", rss, pss));
  for (pid_t child : ProcessTree(server->pid())) {
    if (child == server->pid()) continue;
    PrintLine(fmt::format("  its child {}: {} KiB PSS", child, PssKiB(child).value_or(0)));
  }
  std::vector<std::string> ids;
  uint64_t sum = 0;
  for (int i = 0; i < kSandboxes; i++) {
    CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
    CAISSON_CO_TRY(co_await api.Exec(id, std::string(kExecTrue)));
    ids.push_back(std::move(id));
    if (i > 0) continue;
    CAISSON_CO_ASSIGN(uint64_t alone, SandboxPssKiB(*server, ids[0]));
    PrintLine(fmt::format("sandbox, idle, the only one: {} KiB PSS (guest and spawner)", alone));
  }
  for (const std::string& id : ids) {
    CAISSON_CO_ASSIGN(uint64_t one, SandboxPssKiB(*server, id));
    sum += one;
  }
  PrintLine(
      fmt::format("sandbox, idle, one of {}: {} KiB PSS on average", kSandboxes, sum / kSandboxes));
  CAISSON_CO_ASSIGN(uint64_t rss_after, StatusKiB(server->pid(), "VmRSS"));
  PrintLine(fmt::format("server with {} sandboxes: {} KiB RSS", kSandboxes, rss_after));
  for (const std::string& id : ids) CAISSON_CO_TRY(co_await api.DestroySandbox(id));
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> RunServerGroup(Bench& bench) {
  PrintTitle("server: start, idle memory, the guest");
  CAISSON_CO_TRY(co_await Starts(bench));
  CAISSON_CO_TRY(GuestStarts(bench));
  CAISSON_CO_TRY(co_await Memory(bench));
  std::error_code error;
  auto size = std::filesystem::file_size(bench.program_dir + "/caisson-guest", error);
  PrintLine(fmt::format("guest: {} bytes on disk", error ? 0 : size));
  co_return Result<void>();
}

}  // namespace caisson::bench
