// A command while a search of 100,000 files and an upload of 1 GiB run in the same sandbox.
#include <fmt/format.h>

#include <optional>

#include "api.h"
#include "bare.h"
#include "net/task_group.h"
#include "pieces.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr uint64_t kUploadBytes = 1ull << 30;
constexpr int kRounds = 300;
constexpr int kWarmUps = 20;
constexpr Millis kPause{5};  // between two commands, so that the load runs between them

constexpr std::string_view kSandbox =
    R"({"resources":{"memory_bytes":8589934592,"disk_bytes":4294967296}})";

// 1,000 directories of 100 files.
constexpr std::string_view kMakeTree = R"(
line='int value = compute(first, second); // the usual line of a source file'
mkdir tree && cd tree && d=0
while [ $d -lt 1000 ]; do
  mkdir dir$d; f=0
  while [ $f -lt 100 ]; do echo "$line" > dir$d/file$f.cc; f=$((f+1)); done
  d=$((d+1))
done
)";

// One kind of load, again and again until it is stopped.
struct Load {
  Load(const Bench& bench, uint16_t port) : api(bench, port) {}

  Api api;
  int times = 0;
  Result<void> result;
};

Task<void> SearchAgain(Load& load, std::string target, std::stop_token stop) {
  std::string body = R"({"path":"tree","pattern":"not there"})";
  while (!stop.stop_requested()) {
    auto found = co_await load.api.CallJson("POST", target + "/search/grep", body);
    if (!found) {
      load.result = Fail(std::move(found.error()));
      co_return;
    }
    const json::value* searched = found->if_contains("files_searched");
    if (searched == nullptr || searched->to_number<int64_t>() != 100'000) {
      load.result = Fail(ErrorCode::kProtocol, "the search did not see 100,000 files");
      co_return;
    }
    load.times++;
  }
}

Task<void> UploadAgain(Load& load, std::string target, std::stop_token stop) {
  while (!stop.stop_requested()) {
    Pieces body(kUploadBytes);
    load.result =
        co_await load.api.Upload(target + "/files/content?path=large", body, kUploadBytes);
    if (!load.result) co_return;
    load.times++;
  }
}

struct Rows {
  Samples http;
  Samples bare;
};

Task<Result<void>> MeasureCommands(Bench& bench, Api& api, std::string id, Rows& rows) {
  int rounds = bench.Times(kRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    Stopwatch watch(bench.clock);
    CAISSON_CO_TRY(co_await api.Exec(id, std::string(kExecTrue)));
    if (round >= 0) rows.http.Add(watch.Ms());
    Stopwatch bare(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait({"/bin/true"}));
    if (round >= 0) rows.bare.Add(bare.Ms());
    CAISSON_CO_TRY(co_await bench.loop.Sleep(Until(Deadline::After(bench.clock, kPause))));
  }
  co_return Result<void>();
}

Task<Result<void>> Under(Bench& bench, uint16_t port, std::string id, bool search, bool upload) {
  std::string target = "/v1/sandboxes/" + id;
  Load searching(bench, port);
  Load uploading(bench, port);
  net::TaskGroup loads;
  if (search) loads.Start(SearchAgain(searching, target, loads.stop()));
  if (upload) loads.Start(UploadAgain(uploading, target, loads.stop()));
  Api api(bench, port);
  Rows rows;
  Result<void> measured = co_await MeasureCommands(bench, api, id, rows);
  loads.RequestStop();
  co_await loads.Join();
  CAISSON_CO_TRY(std::move(measured));
  CAISSON_CO_TRY(std::move(searching.result));
  CAISSON_CO_TRY(std::move(uploading.result));
  std::string load = search && upload ? "search and upload" : search ? "search" : "upload";
  if (!search && !upload) load = "no load";
  PrintRow("exec over HTTP: " + load, rows.http,
           fmt::format("{} searches, {} uploads", searching.times, uploading.times));
  PrintRow("  yardstick: bare spawn meanwhile", rows.bare);
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> RunLoadGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox(std::string(kSandbox)));
  json::object make{{"command", kMakeTree}};
  CAISSON_CO_TRY(co_await api.Exec(id, json::Serialize(make)));
  PrintTitle("load: /bin/true in a sandbox where 100,000 files are searched and 1 GiB uploaded");
  CAISSON_CO_TRY(co_await Under(bench, server->port(), id, false, false));
  CAISSON_CO_TRY(co_await Under(bench, server->port(), id, true, false));
  CAISSON_CO_TRY(co_await Under(bench, server->port(), id, false, true));
  CAISSON_CO_TRY(co_await Under(bench, server->port(), id, true, true));
  co_return co_await api.DestroySandbox(id);
}

}  // namespace caisson::bench
