// A command in a live sandbox, against the bare spawn of the same.
#include "api.h"
#include "bare.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr int kRounds = 500;
constexpr int kWarmUps = 50;

// One command both ways, in turns.
class Pair {
 public:
  Pair(std::string name, std::string body, std::vector<std::string> argv)
      : name_(std::move(name)), body_(std::move(body)), argv_(std::move(argv)) {}

  Task<Result<void>> Measure(Bench& bench, Api& api, std::string id, bool keep) {
    Stopwatch watch(bench.clock);
    CAISSON_CO_TRY(co_await api.Exec(std::move(id), body_));
    double http = watch.Ms();
    Stopwatch bare_watch(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait(argv_));
    double bare = bare_watch.Ms();
    if (keep) http_.Add(http);
    if (keep) bare_.Add(bare);
    if (keep) difference_.Add(http - bare);
    co_return Result<void>();
  }
  void Print() const {
    PrintRow("exec over HTTP: " + name_, http_);
    PrintRow("yardstick: posix_spawn and wait of the same", bare_);
    PrintRow("  difference, pair by pair", difference_);
  }

 private:
  std::string name_;
  std::string body_;
  std::vector<std::string> argv_;
  Samples http_;
  Samples bare_;
  Samples difference_;
};

}  // namespace

Task<Result<void>> RunExecGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
  PrintTitle("exec: a command in a live sandbox, one kept connection");
  Pair direct("/bin/true", std::string(kExecTrue), {"/bin/true"});
  Pair shell("sh -c true", R"({"command":"true"})", {"/bin/sh", "-c", "true"});
  Samples health;
  int rounds = bench.Times(kRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    CAISSON_CO_TRY(co_await direct.Measure(bench, api, id, round >= 0));
    CAISSON_CO_TRY(co_await shell.Measure(bench, api, id, round >= 0));
    Stopwatch watch(bench.clock);
    CAISSON_CO_TRY(co_await api.Call("GET", "/health", ""));
    if (round >= 0) health.Add(watch.Ms());
  }
  direct.Print();
  shell.Print();
  PrintRow("yardstick: GET /health, the same connection", health);
  co_return co_await api.DestroySandbox(id);
}

}  // namespace caisson::bench
