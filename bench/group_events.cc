// Durable events through the store, in process.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/syscall.h"
#include "groups.h"
#include "net/task_group.h"
#include "server_process.h"
#include "stats.h"
#include "store/sqlite/sqlite_store.h"

namespace caisson::bench {
namespace {

constexpr int kRounds = 5;
constexpr double kRoundMs = 500;
constexpr Millis kLease{3'600'000};

// So many writers, each with a session and a run of its own, and one event at a time.
struct Crowd {
  std::vector<store::Fence> writers;
  Samples latency;
  double elapsed_ms = 0;
};

Task<Result<void>> AddWriter(Bench& bench, store::Store& store, Crowd& crowd) {
  Scope scope = Scope::Root();
  CAISSON_CO_ASSIGN(auto session, co_await store.CreateSession(scope, {"a", "", "{}"}, {}));
  CAISSON_CO_TRY(co_await store.Submit(
      scope, {session.id, R"([{"type":"text","text":"go"}])", store::Multitask::kReject, {}}));
  CAISSON_CO_ASSIGN(auto claim,
                    co_await store.ClaimRun(ReplicaId::Make(bench.clock, bench.random), kLease));
  if (!claim.has_value()) co_return Fail(ErrorCode::kInternal, "no run to claim");
  crowd.writers.push_back(std::move(claim->fence));
  co_return Result<void>();
}

Task<void> WriteEvents(Bench& bench, store::Store& store, store::Fence fence, Crowd& crowd,
                       Result<void>& result) {
  const std::string payload =
      R"({"message_id":"m","attempt":1,"content":"a few words that a model said"})";
  Stopwatch round(bench.clock);
  while (round.Ms() < kRoundMs) {
    Stopwatch watch(bench.clock);
    std::vector<events::NewEvent> one{{events::EventType::kToken, payload}};
    auto appended = co_await store.AppendEvents(fence, std::move(one));
    if (!appended) {
      result = Fail(std::move(appended.error()));
      co_return;
    }
    crowd.latency.Add(watch.Ms());
  }
}

Task<Result<void>> Round(Bench& bench, store::Store& store, Crowd& crowd) {
  Result<void> result;
  Stopwatch watch(bench.clock);
  net::TaskGroup group;
  for (const store::Fence& fence : crowd.writers) {
    group.Start(WriteEvents(bench, store, fence, crowd, result));
  }
  co_await group.Join();
  crowd.elapsed_ms += watch.Ms();
  co_return result;
}

// What the disk does: a page appended and synced.
Result<void> SyncedWrites(const Bench& bench, int fd, Samples& samples) {
  std::string page(4096, 'p');
  for (int i = 0; i < 100; i++) {
    Stopwatch watch(bench.clock);
    CAISSON_TRY(WriteAll(fd, page));
    if (::fdatasync(fd) != 0) return Fail(ErrnoError(errno, "fdatasync"));
    samples.Add(watch.Ms());
  }
  return {};
}

}  // namespace

Task<Result<void>> RunEventsGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto dir, TemporaryDirectory::Make(bench));
  CAISSON_CO_ASSIGN(auto store, store::sqlite::OpenSqliteStore({dir->path() + "/caisson.db", true},
                                                               bench.clock, bench.random));
  CAISSON_CO_ASSIGN(UniqueFd bare_file,
                    OpenFile(dir->path() + "/bare", O_WRONLY | O_CREAT | O_APPEND, 0600));
  PrintTitle("events: appended durably through the store, one event at a time a writer");
  Crowd crowds[3];
  constexpr int kSizes[] = {1, 10, 100};
  for (int i = 0; i < 3; i++) {
    for (int writer = 0; writer < kSizes[i]; writer++) {
      CAISSON_CO_TRY(co_await AddWriter(bench, *store, crowds[i]));
    }
  }
  Samples bare;
  int rounds = bench.Times(kRounds);
  for (int round = 0; round < rounds; round++) {
    for (Crowd& crowd : crowds) CAISSON_CO_TRY(co_await Round(bench, *store, crowd));
    CAISSON_CO_TRY(SyncedWrites(bench, bare_file.get(), bare));
  }
  for (const Crowd& crowd : crowds) {
    double rate = static_cast<double>(crowd.latency.size()) * 1000 / crowd.elapsed_ms;
    PrintRow(fmt::format("{} writers: until an event is durable", crowd.writers.size()),
             crowd.latency, fmt::format("{:.0f} events/s", rate));
  }
  PrintRow("yardstick: write(2) of 4 KiB and fdatasync", bare);
  co_return Result<void>();
}

}  // namespace caisson::bench
