#include "bare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/syscall.h"
#include "json/json.h"

namespace caisson::bench {
namespace {

Result<pid_t> StartProcess(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* environment[] = {path, nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  int error = ::posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environment);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Fail(ErrnoError(error, "start " + argv[0]));
  return pid;
}

Result<void> WaitFor(pid_t pid, const std::string& what) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return Fail(ErrnoError(errno, "wait for " + what));
  }
  if (status == 0) return {};
  return Fail(ErrorCode::kInternal, what + " failed");
}

std::string FindProgram(const std::string& name) {
  for (const char* dir : {"/usr/local/bin/", "/usr/bin/", "/usr/sbin/", "/bin/"}) {
    if (::access((dir + name).c_str(), X_OK) == 0) return dir + name;
  }
  return {};
}

// A bundle that runs /bin/true on the host's root.
Result<void> MakeBundle(const Bench& bench, const std::string& runc, const std::string& dir) {
  SpawnSpec spec;
  spec.program = runc;
  spec.arguments = {"spec", "--bundle", dir};
  CAISSON_TRY(RunCommand(spec, "", 1 << 20, bench.clock, bench.Soon().deadline));
  CAISSON_ASSIGN(std::string text, ReadWholeFile(dir + "/config.json"));
  CAISSON_ASSIGN(json::object config, json::ParseObject(text));
  json::value& process = config["process"];
  if (!process.is_object()) return Fail(ErrorCode::kProtocol, "runc's bundle has no process");
  process.get_object()["terminal"] = false;
  process.get_object()["args"] = json::array{"/bin/true"};
  config["root"] = json::object{{"path", "/"}, {"readonly", true}};
  CAISSON_ASSIGN(UniqueFd file, OpenFile(dir + "/config.json", O_WRONLY | O_TRUNC));
  return WriteAll(file.get(), json::Serialize(config));
}

}  // namespace

Result<void> SpawnAndWait(const std::vector<std::string>& argv) {
  CAISSON_ASSIGN(pid_t pid, StartProcess(argv));
  return WaitFor(pid, argv[0]);
}

Result<void> SpawnManyAndWait(const std::vector<std::string>& argv, int count) {
  std::vector<pid_t> pids;
  Result<void> result;
  for (int i = 0; i < count && result; i++) {
    auto pid = StartProcess(argv);
    if (pid) pids.push_back(*pid);
    if (!pid) result = Fail(std::move(pid.error()));
  }
  for (pid_t pid : pids) {
    auto ended = WaitFor(pid, argv[0]);
    if (result) result = std::move(ended);
  }
  return result;
}

std::string FindTool(const std::string& name) {
  std::string program = FindProgram(name);
  if (program.empty()) PrintLine(fmt::format("  {}: not installed", name));
  return program;
}

bool OtherTool::Works(const Bench& bench) const {
  SpawnSpec spec;
  spec.program = argv_[0];
  spec.arguments.assign(argv_.begin() + 1, argv_.end());
  spec.environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  auto output = RunCommand(spec, "", 1 << 20, bench.clock, bench.Soon().deadline);
  if (output && output->status.ok()) return true;
  std::string why = output ? output->err : output.error().ToString();
  PrintLine(fmt::format("  {}: does not work here: {}", name_, why.substr(0, why.find('\n'))));
  return false;
}

Result<void> OtherTool::Measure(const Bench& bench, int round) {
  if (round % every_ != 0) return {};
  Stopwatch watch(bench.clock);
  CAISSON_TRY(SpawnAndWait(argv_));
  samples_.Add(watch.Ms());
  return {};
}

Result<std::vector<OtherTool>> FindOtherTools(const Bench& bench,
                                              const TemporaryDirectory& scratch) {
  std::vector<OtherTool> tools;
  auto add = [&](OtherTool tool) {
    if (tool.Works(bench)) tools.push_back(std::move(tool));
  };
  if (std::string bwrap = FindTool("bwrap"); !bwrap.empty()) {
    add({"bwrap --unshare-all, read-only root",
         {bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev",
          "/bin/true"},
         1});
  }
  if (std::string runc = FindTool("runc"); !runc.empty()) {
    CAISSON_TRY(MakeBundle(bench, runc, scratch.path()));
    add({"runc run", {runc, "run", "--bundle", scratch.path(), "caisson-bench"}, 4});
  }
  if (std::string docker = FindTool("docker"); !docker.empty()) {
    add({"docker run --network none",
         {docker, "run", "--rm", "--pull", "never", "--network", "none", "busybox", "true"},
         20});
  }
  return tools;
}

}  // namespace caisson::bench
