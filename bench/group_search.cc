// grep and glob over a tree in a sandbox, against rg and fdfind on the same files.
#include <fmt/format.h>
#include <unistd.h>

#include "api.h"
#include "bare.h"
#include "base/syscall.h"
#include "machine.h"
#include "server_process.h"
#include "stats.h"

namespace caisson::bench {
namespace {

constexpr int kRounds = 50;
constexpr int kWarmUps = 3;

// 100 directories of 100 files of about 5 KB; one file in 100 has the needle. Without any process:
// only what the shell does itself.
constexpr std::string_view kMakeTree = R"(
line='int value = compute(first, second); // the usual line of a source file'
text=$line; i=0
while [ $i -lt 5 ]; do text="$text
$text"; i=$((i+1)); done
text="$text
$text"
mkdir tree && cd tree && d=0
while [ $d -lt 100 ]; do
  mkdir dir$d; f=0
  while [ $f -lt 99 ]; do echo "$text" > dir$d/file$f.cc; f=$((f+1)); done
  echo "$text
the needle_$d is here" > dir$d/notes.txt
  d=$((d+1))
done
)";

// One search over HTTP, and another program's.
struct Row {
  std::string name;
  std::string call;
  std::string body;
  size_t matches;
  std::string tool;
  std::string command;  // of the tool, for a shell; empty where it is not installed
  Samples http = {};
  Samples other = {};
};

Task<Result<void>> MeasureOnce(Bench& bench, Api& api, const std::string& target, Row& row,
                               bool keep) {
  Stopwatch watch(bench.clock);
  CAISSON_CO_ASSIGN(std::string answer, co_await api.Call("POST", target + row.call, row.body));
  double http = watch.Ms();
  if (keep) row.http.Add(http);
  if (row.command.empty()) co_return Result<void>();
  Stopwatch other(bench.clock);
  CAISSON_CO_TRY(SpawnAndWait({"/bin/sh", "-c", row.command}));
  double spent = other.Ms();
  if (keep) row.other.Add(spent);
  co_return Result<void>();
}

// Where the sandbox's tree is seen from here: below the guest's root.
Result<std::string> TreeOf(const ServerProcess& server) {
  for (pid_t pid : ProcessTree(server.pid())) {
    std::string directory = fmt::format("/proc/{}/root/workspace/tree", pid);
    if (::access((directory + "/dir0").c_str(), X_OK) == 0) return directory;
  }
  return Fail(ErrorCode::kNotFound, "no process of the server sees the tree it has made");
}

Task<Result<void>> Check(Api& api, const std::string& target, const Row& row) {
  CAISSON_CO_ASSIGN(json::object answer,
                    co_await api.CallJson("POST", target + row.call, row.body));
  const json::value* matches = answer.if_contains("matches");
  if (matches != nullptr && matches->is_array() && matches->get_array().size() == row.matches) {
    co_return Result<void>();
  }
  co_return Fail(ErrorCode::kProtocol, row.name + " did not find what is there");
}

}  // namespace

Task<Result<void>> RunSearchGroup(Bench& bench) {
  CAISSON_CO_ASSIGN(auto server, ServerProcess::Start(bench));
  Api api(bench, server->port());
  CAISSON_CO_ASSIGN(std::string id, co_await api.CreateSandbox());
  json::object make{{"command", kMakeTree}};
  CAISSON_CO_TRY(co_await api.Exec(id, json::Serialize(make)));
  CAISSON_CO_ASSIGN(std::string directory, TreeOf(*server));
  PrintTitle("search: 10,000 files of 5 KB in a live sandbox, one kept connection");
  std::string target = "/v1/sandboxes/" + id;
  const std::string grep = "/search/grep";
  const std::string glob = "/search/glob";
  // rg from within the tree, as the guest walks it; fdfind cannot start there.
  auto rg = [&, program = FindTool("rg")](std::string_view arguments) {
    return program.empty() ? ""
                           : fmt::format("cd {} && exec {} --no-ignore --hidden -n -j1 {}",
                                         directory, program, arguments);
  };
  auto fd = [&, program = FindTool("fdfind")](std::string_view arguments) {
    return program.empty() ? ""
                           : fmt::format("exec {} --no-ignore --hidden --type f --glob {} {}",
                                         program, arguments, directory);
  };
  Row rows[] = {
      {"grep: a text in 100 of 10,000 files", grep, R"({"path":"tree","pattern":"needle_"})", 100,
       "rg -F -j1", rg("-F needle_")},
      {"grep: a regular expression, the same lines", grep,
       R"({"path":"tree","pattern":"ne+dle_[0-9]+\\b","regex":true})", 100, "rg -j1",
       rg("'ne+dle_[0-9]+\\b'")},
      {"glob: all of 10,000 files", glob, R"({"path":"tree","pattern":"*"})", 10'000, "fdfind",
       fd("'*'")},
      {"glob: 100 of them", glob, R"({"path":"tree","pattern":"*.txt"})", 100, "fdfind",
       fd("'*.txt'")},
  };
  for (const Row& row : rows) CAISSON_CO_TRY(co_await Check(api, target, row));
  int rounds = bench.Times(kRounds);
  for (int round = -kWarmUps; round < rounds; round++) {
    for (Row& row : rows) {
      CAISSON_CO_TRY(co_await MeasureOnce(bench, api, target, row, round >= 0));
    }
  }
  for (const Row& row : rows) {
    PrintRow(row.name, row.http);
    if (row.command.empty()) continue;
    double times = row.http.At(0.5) / std::max(row.other.At(0.5), 1e-6);
    PrintRow("  " + row.tool, row.other, fmt::format("{:.2f} times at p50", times));
  }
  co_return co_await api.DestroySandbox(id);
}

}  // namespace caisson::bench
