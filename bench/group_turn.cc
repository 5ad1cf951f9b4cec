// A turn of an agent whose model takes no time: what is left is Caisson's.
#include <fmt/format.h>

#include "api.h"
#include "bare.h"
#include "json/reader.h"
#include "model.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr int kSessions = 100;
constexpr int kWarmUps = 5;

Task<Result<std::string>> IdOf(Api& api, std::string path, std::string body) {
  CAISSON_CO_ASSIGN(json::object made, co_await api.CallJson("POST", std::move(path), body));
  co_return json::ObjectReader(made).String("id").value_or("");
}

// From sending the message to the end of its run's stream, without the model's own time.
Task<Result<double>> Turn(Bench& bench, Api& api, InstantModel& model, std::string session) {
  (void)model.TakeSpentMs();
  (void)model.TakeCalls();
  Stopwatch watch(bench.clock);
  CAISSON_CO_ASSIGN(std::string stream,
                    co_await api.Call("POST", "/v1/sessions/" + session + "/messages",
                                      R"({"content":"go"})", "text/event-stream"));
  double all = watch.Ms();
  if (model.TakeCalls() == 2 && stream.find("event: done") != stream.npos) {
    co_return all - model.TakeSpentMs();
  }
  co_return Fail(ErrorCode::kProtocol, "a turn went wrong: " + stream);
}

Task<Result<void>> Turns(Bench& bench, Api& api, InstantModel& model) {
  std::string provider = fmt::format(
      R"({{"name":"instant","protocol":"openai","base_url":"http://127.0.0.1:{}/v1","model":"instant","max_retries":0}})",
      model.port());
  CAISSON_CO_TRY(co_await api.Call("POST", "/v1/providers", provider));
  CAISSON_CO_TRY(co_await api.Call("POST", "/v1/agents", R"({"name":"a","provider":"instant"})"));
  Samples first;
  Samples second;
  Samples exec;
  Samples bare;
  int sessions = bench.Times(kSessions);
  for (int round = -kWarmUps; round < sessions; round++) {
    CAISSON_CO_ASSIGN(std::string session, co_await IdOf(api, "/v1/sessions", R"({"agent":"a"})"));
    CAISSON_CO_ASSIGN(double with_create, co_await Turn(bench, api, model, session));
    CAISSON_CO_ASSIGN(double live, co_await Turn(bench, api, model, session));
    CAISSON_CO_ASSIGN(
        std::string sandbox,
        co_await IdOf(api, "/v1/sandboxes", fmt::format(R"({{"session_id":"{}"}})", session)));
    Stopwatch exec_watch(bench.clock);
    CAISSON_CO_TRY(co_await api.Exec(sandbox, R"({"command":"true"})"));
    double ran = exec_watch.Ms();
    CAISSON_CO_TRY(co_await api.DestroySandbox(sandbox));
    Stopwatch bare_watch(bench.clock);
    CAISSON_CO_TRY(SpawnAndWait({"/bin/sh", "-c", "true"}));
    double spawned = bare_watch.Ms();
    if (round < 0) continue;
    first.Add(with_create);
    second.Add(live);
    exec.Add(ran);
    bare.Add(spawned);
  }
  PrintRow("a turn in a live sandbox", second);
  PrintRow("a session's first turn, which makes the sandbox", first);
  PrintRow("yardstick: the same command by POST …/exec", exec);
  PrintRow("yardstick: posix_spawn and wait of sh -c true", bare);
  co_return Result<void>();
}

}  // namespace

Task<Result<void>> RunTurnGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto model, InstantModel::Start(bench));
  Result<void> result;
  auto server = ServerProcess::Start(bench);
  if (server) {
    PrintTitle("turn: two model calls and `execute true`, without the model's own time");
    Api api(bench, (*server)->port());
    result = co_await Turns(bench, api, *model);
  } else {
    result = Fail(std::move(server.error()));
  }
  co_await model->Drain();
  co_return result;
}

}  // namespace caisson::bench
