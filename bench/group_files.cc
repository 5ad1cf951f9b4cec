// One large file in and out, and what the server's memory does.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "api.h"
#include "base/syscall.h"
#include "machine.h"
#include "pieces.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr uint64_t kFileBytes = 64 << 20;
constexpr int kRounds = 20;
constexpr int kWarmUps = 2;

// The bare operation: the page cache, one process, no sandbox.
Result<void> WriteFile(const std::string& path) {
  CAISSON_ASSIGN(UniqueFd file, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  std::string piece(kPieceBytes, 'c');
  for (uint64_t done = 0; done < kFileBytes; done += piece.size()) {
    CAISSON_TRY(WriteAll(file.get(), piece));
  }
  return {};
}

Result<void> ReadFile(const std::string& path) {
  CAISSON_ASSIGN(UniqueFd file, OpenFile(path, O_RDONLY));
  std::string piece(kPieceBytes, '\0');
  ssize_t got = 1;
  while (got > 0) got = ::read(file.get(), piece.data(), piece.size());
  if (got < 0) return Fail(ErrnoError(errno, "read " + path));
  return {};
}

}  // namespace

Task<Result<void>> RunFilesGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
  CAISSON_CO_TRY(co_await api.Exec(id, std::string(kExecTrue)));
  CAISSON_CO_ASSIGN(uint64_t peak_before, StatusKiB(server->pid(), "VmHWM"));
  PrintTitle("files: 64 MiB through the HTTP API, one stream");
  std::string target = "/v1/sandboxes/" + id + "/files/content?path=large";
  std::string bare_file = server->data_dir() + "/bench-file";
  Samples up;
  Samples down;
  Samples bare_write;
  Samples bare_read;
  int rounds = bench.Times(kRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    Stopwatch up_watch(bench.clock);
    Pieces body(kFileBytes);
    CAISSON_CO_TRY(co_await api.Upload(target, body, kFileBytes));
    double uploaded = up_watch.Ms();
    Stopwatch down_watch(bench.clock);
    CAISSON_CO_ASSIGN(uint64_t size, co_await api.Download(target));
    double downloaded = down_watch.Ms();
    if (size != kFileBytes) co_return Fail(ErrorCode::kProtocol, "the file came back shorter");
    Stopwatch write_watch(bench.clock);
    CAISSON_CO_TRY(WriteFile(bare_file));
    double written = write_watch.Ms();
    Stopwatch read_watch(bench.clock);
    CAISSON_CO_TRY(ReadFile(bare_file));
    double read = read_watch.Ms();
    if (round < 0) continue;
    up.Add(uploaded);
    down.Add(downloaded);
    bare_write.Add(written);
    bare_read.Add(read);
  }
  PrintSpeed("upload", up, kFileBytes);
  PrintSpeed("download", down, kFileBytes);
  PrintSpeed("yardstick: write(2) to a file of the data directory", bare_write, kFileBytes);
  PrintSpeed("yardstick: read(2) of it", bare_read, kFileBytes);
  CAISSON_CO_ASSIGN(uint64_t peak_after, StatusKiB(server->pid(), "VmHWM"));
  PrintLine(fmt::format("server's peak RSS: {} KiB before, {} KiB after", peak_before, peak_after));
  co_return co_await api.DestroySandbox(id);
}

}  // namespace caisson::bench
