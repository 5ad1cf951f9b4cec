// The guest's own part: commands, output and files at its socket, without the server in between.
#include <fmt/format.h>
#include <unistd.h>

#include "api.h"
#include "bare.h"
#include "base/syscall.h"
#include "cli/runtime_dir.h"
#include "json/reader.h"
#include "machine.h"
#include "net/dialer.h"
#include "pieces.h"
#include "sandbox/guest_client.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

using sandbox::GuestClient;

constexpr int kExecRounds = 500;
constexpr int kTransferRounds = 20;
constexpr int kWarmUps = 20;
constexpr uint64_t kBytes = 64 << 20;

// What the server knows of this sandbox: where its guest listens, and its token and process.
struct Reached {
  std::unique_ptr<GuestClient> guest;
  pid_t pid = -1;
};
Result<Reached> Reach(Bench& bench, const ServerProcess& server, const std::string& id) {
  CAISSON_ASSIGN(std::string dir, cli::RuntimeDirOf(server.data_dir()));
  CAISSON_ASSIGN(std::string text, ReadWholeFile(fmt::format("{}/sandboxes/{}.json", dir, id)));
  CAISSON_ASSIGN(json::object instance, json::ParseObject(text));
  json::ObjectReader reader(instance);
  Reached reached;
  reached.pid = static_cast<pid_t>(reader.Int("pid", 1, INT32_MAX).value_or(-1));
  reached.guest = std::make_unique<GuestClient>(
      std::make_unique<net::UnixDialer>(bench.loop, fmt::format("{}/sandboxes/{}.sock", dir, id)),
      reader.String("token").value_or(""), UINT32_MAX, bench.clock);
  return reached;
}

// Runs it to its end; the number of output bytes.
Task<Result<uint64_t>> RunToEnd(Bench& bench, GuestClient& guest, sandbox::ExecRequest request) {
  Until until(Deadline::After(bench.clock, Millis(60'000)));
  CAISSON_CO_ASSIGN(sandbox::ExecStream stream,
                    co_await guest.StartExec(std::move(request), until));
  uint64_t bytes = 0;
  for (;;) {
    CAISSON_CO_ASSIGN(auto record, co_await stream.Next(until));
    if (!record.has_value()) co_return bytes;
    if (record->type == guest::RecordType::kStdout) bytes += record->payload.size();
  }
}

Task<Result<void>> Execs(Bench& bench, GuestClient& guest) {
  Samples through;
  Samples bare;
  Samples difference;
  int rounds = bench.Times(kExecRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    sandbox::ExecRequest request;
    request.argv = {"/bin/true"};
    Stopwatch watch(bench.clock);
    CAISSON_CO_TRY(co_await RunToEnd(bench, guest, std::move(request)));
    double ran = watch.Ms();
    Stopwatch bare_watch(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait({"/bin/true"}));
    double spawned = bare_watch.Ms();
    if (round < 0) continue;
    through.Add(ran);
    bare.Add(spawned);
    difference.Add(ran - spawned);
  }
  PrintRow("exec at the socket: /bin/true", through);
  PrintRow("yardstick: posix_spawn and wait of the same", bare);
  PrintRow("  difference, pair by pair", difference);
  co_return Result<void>();
}

Task<Result<double>> ReadFile(Bench& bench, GuestClient& guest) {
  Until until(Deadline::After(bench.clock, Millis(60'000)));
  Stopwatch watch(bench.clock);
  CAISSON_CO_ASSIGN(auto answer,
                    co_await guest.Call("GET", std::string(guest::kPathFileContent) + "?path=large",
                                        "", "", until));
  uint64_t total = 0;
  for (;;) {
    CAISSON_CO_ASSIGN(std::string piece, co_await answer.connection->ReadBody(until));
    if (piece.empty()) break;
    total += piece.size();
  }
  if (total != kBytes) co_return Fail(ErrorCode::kProtocol, "the file came back shorter");
  co_return watch.Ms();
}

Task<Result<void>> Transfers(Bench& bench, GuestClient& guest) {
  Samples output;
  Samples write;
  Samples read;
  int rounds = bench.Times(kTransferRounds);
  for (int round = -2; round < rounds; round++) {
    sandbox::ExecRequest request;
    request.argv = {"head", "-c", fmt::to_string(kBytes), "/dev/zero"};
    Stopwatch watch(bench.clock);
    CAISSON_CO_ASSIGN(uint64_t got, co_await RunToEnd(bench, guest, std::move(request)));
    double ran = watch.Ms();
    if (got != kBytes) co_return Fail(ErrorCode::kProtocol, "output was lost");
    Pieces body(kBytes);
    Stopwatch write_watch(bench.clock);
    CAISSON_CO_TRY(co_await guest.Upload("PUT",
                                         std::string(guest::kPathFileContent) + "?path=large", body,
                                         Until(Deadline::After(bench.clock, Millis(60'000)))));
    double wrote = write_watch.Ms();
    CAISSON_CO_ASSIGN(double read_ms, co_await ReadFile(bench, guest));
    if (round < 0) continue;
    output.Add(ran);
    write.Add(wrote);
    read.Add(read_ms);
  }
  PrintSpeed("64 MiB of a command's output", output, kBytes);
  PrintSpeed("64 MiB written to a file (and hashed)", write, kBytes);
  PrintSpeed("64 MiB read from it", read, kBytes);
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> RunGuestGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
  CAISSON_CO_ASSIGN(Reached reached, Reach(bench, *server, id));
  PrintTitle("guest: at its socket, in a sandbox, without the server");
  CAISSON_CO_TRY(co_await Execs(bench, *reached.guest));
  CAISSON_CO_ASSIGN(uint64_t before, StatusKiB(reached.pid, "VmHWM"));
  CAISSON_CO_TRY(co_await Transfers(bench, *reached.guest));
  CAISSON_CO_ASSIGN(uint64_t after, StatusKiB(reached.pid, "VmHWM"));
  PrintLine(fmt::format("the guest's peak RSS: {} KiB before the transfers, {} KiB after", before,
                        after));
  reached.guest.reset();
  co_return co_await api.DestroySandbox(id);
}

}  // namespace caisson::bench
