// create → first command → destroy, one by one and 100 at once.
#include <fmt/format.h>

#include "api.h"
#include "bare.h"
#include "net/task_group.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr int kRounds = 200;
constexpr int kWarmUps = 20;
constexpr int kAtOnce = 100;
constexpr int kBursts = 10;
const std::vector<std::string> kTrue{"/bin/true"};

Task<Result<void>> OneByOne(Bench& bench, Api& api, std::vector<OtherTool>& tools) {
  Samples create;
  Samples first;
  Samples destroy;
  Samples all;
  Samples bare;
  int rounds = bench.Times(kRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    Stopwatch watch(bench.clock);
    CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
    double created = watch.Ms();
    CAISSON_CO_TRY(co_await api.Exec(id, std::string(kExecTrue)));
    double ran = watch.Ms();
    CAISSON_CO_TRY(co_await api.DestroySandbox(id));
    double destroyed = watch.Ms();
    Stopwatch bare_watch(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait(kTrue));
    double spawned = bare_watch.Ms();
    if (round < 0) continue;
    create.Add(created);
    first.Add(ran - created);
    destroy.Add(destroyed - ran);
    all.Add(destroyed);
    bare.Add(spawned);
  }
  // The other tools in a turn of their own: the kernel takes their namespaces down afterwards, in
  // the background, and whoever is measured next would pay for that.
  for (int round = -kWarmUps; round < rounds; round++) {
    for (OtherTool& tool : tools) CAISSON_CO_TRY(tool.Measure(bench, round));
  }
  PrintRow("create, first command, destroy over HTTP", all);
  PrintRow("  create", create);
  PrintRow("  first command (/bin/true)", first);
  PrintRow("  destroy", destroy);
  PrintRow("yardstick: posix_spawn and wait of /bin/true", bare);
  for (const OtherTool& tool : tools) tool.Print();
  co_return Result<void>();
}

struct Client {
  Client(const Bench& bench, uint16_t port) : api(bench, port) {}
  Api api;
  std::string id;
  Result<void> result;
};

Task<void> CreateAndRun(Client& client) {
  auto id = co_await client.api.CreateSandbox();
  if (!id) {
    client.result = Fail(std::move(id.error()));
    co_return;
  }
  client.id = std::move(*id);
  client.result = co_await client.api.Exec(client.id, std::string(kExecTrue));
}

Task<void> Destroy(Client& client) {
  if (client.id.empty()) co_return;
  auto destroyed = co_await client.api.DestroySandbox(client.id);
  if (client.result) client.result = std::move(destroyed);
}

Task<Result<void>> ManyAtOnce(Bench& bench, uint16_t port) {
  Samples ready;
  Samples gone;
  Samples bare;
  int bursts = bench.Times(kBursts);
  for (int burst = -1; burst < bursts; burst++) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < kAtOnce; i++) clients.push_back(std::make_unique<Client>(bench, port));
    Stopwatch watch(bench.clock);
    net::TaskGroup running;
    for (auto& client : clients) running.Start(CreateAndRun(*client));
    co_await running.Join();
    double all_ready = watch.Ms();
    net::TaskGroup ending;
    for (auto& client : clients) ending.Start(Destroy(*client));
    co_await ending.Join();
    double all_gone = watch.Ms();
    for (auto& client : clients) CAISSON_CO_TRY(std::move(client->result));
    Stopwatch bare_watch(bench.clock);
    CAISSON_CO_TRY(SpawnManyAndWait(kTrue, kAtOnce));
    double spawned = bare_watch.Ms();
    if (burst < 0) continue;
    ready.Add(all_ready);
    gone.Add(all_gone);
    bare.Add(spawned);
  }
  PrintRow(fmt::format("{} at once: until the last has run /bin/true", kAtOnce), ready);
  PrintRow(fmt::format("{} at once: until the last is destroyed", kAtOnce), gone);
  PrintRow(fmt::format("yardstick: {} bare spawns at once", kAtOnce), bare);
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> RunSandboxGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  CAISSON_CO_ASSIGN(auto scratch, TemporaryDirectory::Make(bench));
  PrintTitle("sandbox: a local sandbox through the HTTP API");
  CAISSON_CO_ASSIGN(auto tools, FindOtherTools(bench, *scratch));
  Api api(bench, server->port());
  CAISSON_CO_TRY(co_await OneByOne(bench, api, tools));
  co_return co_await ManyAtOnce(bench, server->port());
}

}  // namespace caisson::bench
