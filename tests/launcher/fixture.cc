#include "fixture.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/syscall.h"
#include "sandbox/seccomp_policy.h"

namespace caisson::launcher::testing {
namespace {

namespace fs = std::filesystem;
constexpr uint32_t kFirstUid = 500'000'000;  // of the test's sandboxes; used by nobody else

std::string Prefix() { return "t" + std::to_string(getpid()) + "-"; }

sockaddr_un Address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

Output Box::Ask(const std::string& request) const {
  Output output;
  UniqueFd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = Address(socket_path);
  if (connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    output.text = "connect: " + ErrnoName(errno);
    return output;
  }
  timeval patience{30, 0};
  setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_TRUE(WriteAll(peer.get(), request + "\n").has_value());
  std::string all = ReadAll(peer.get(), 4 << 20).value_or(std::string());
  size_t line = all.find('\n');
  if (line == all.npos) {
    output.text = "the guest gave no answer";
    return output;
  }
  output.code = atoi(all.c_str());
  output.text = all.substr(line + 1);
  return output;
}

std::string Box::CgroupPaths() const {
  std::string paths;
  for (const CgroupDir& dir : plan.cgroups) paths += dir.path + '\0';
  return paths;
}

void LauncherTest::SetUp() {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  SetUpAnyUser();
  ASSERT_TRUE(facts_.root) << facts_.root_reason;
  ASSERT_TRUE(facts_.namespaces.available) << facts_.namespaces.reason;
}

void LauncherTest::SetUpAnyUser() {
  // Sandboxes whose launcher died become children of this process, which reaps them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  char pattern[] = "/tmp/caisson-launcher-test-XXXXXX";
  state_dir_ = mkdtemp(pattern);
  facts_ = sandbox::local::ProbeHost(std::string(getenv("CAISSON_BIN_DIR")) + "/caisson-launcher");
  outer_filter_ = sandbox::CompileFilter(sandbox::FilterKind::kOuter).value();
  inner_filter_ = sandbox::CompileFilter(sandbox::FilterKind::kInner).value();
  before_ = Census();
}

void LauncherTest::TearDown() {
  if (state_dir_.empty()) return;
  std::error_code ignored;
  fs::remove_all(state_dir_, ignored);
}

Box LauncherTest::Prepare(const sandbox::SandboxSpec& spec, const std::string& workspace) {
  Box box;
  uint32_t number = next_box_++;
  box.id = Prefix() + std::to_string(number);
  sandbox::local::SandboxPaths paths;
  paths.id = box.id;
  paths.stage_dir = state_dir_ + "/stage";
  paths.workspace_dir = workspace;
  paths.uid_base = kFirstUid + number * sandbox::local::kIdsPerSandbox;
  mkdir(paths.stage_dir.c_str(), 0755);
  Result<LaunchPlan> plan = sandbox::local::BuildLaunchPlan(facts_, spec, paths, outer_filter_);
  EXPECT_TRUE(plan.has_value()) << plan.error().ToString();
  if (plan) box.plan = std::move(*plan);
  box.socket_path = state_dir_ + "/" + box.id;
  unlink(box.socket_path.c_str());
  box.listen.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = Address(box.socket_path);
  EXPECT_EQ(bind(box.listen.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(box.listen.get(), 16), 0);
  return box;
}

uint32_t LauncherTest::SendCreate(Client& client, Box& box, const std::string& config) {
  UniqueFd plan = MakeSealedMemFd("plan", EncodePlan(box.plan)).value();
  std::string program = guest_program_.empty()
                            ? std::string(getenv("CAISSON_BIN_DIR")) + "/probe-guest"
                            : guest_program_;
  UniqueFd guest = OpenFile(program, O_RDONLY).value();
  UniqueFd token = MakeSealedMemFd("token", "token").value();
  UniqueFd configuration = MakeSealedMemFd("config", config).value();
  UniqueFd filter = MakeSealedMemFd("filter", inner_filter_).value();
  Request request;
  request.op = Op::kCreate;
  if (config == "hang") request.deadline_ms = 300;
  return client.Send(
      request, {},
      {plan.get(), guest.get(), box.listen.get(), token.get(), configuration.get(), filter.get()});
}

Answer LauncherTest::Create(Client& client, Box& box, const std::string& config) {
  Answer answer = client.Wait(SendCreate(client, box, config));
  box.pid = answer.reply.pid;
  box.start_time = answer.reply.start_time;
  box.reply = answer.reply;
  if (answer.ok()) box.pidfd = std::move(answer.fd);
  return answer;
}

Box LauncherTest::Start(Client& client, const sandbox::SandboxSpec& spec,
                        const std::string& config) {
  Box box = Prepare(spec);
  Answer answer = Create(client, box, config);
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_GT(box.pid, 0);
  EXPECT_TRUE(box.pidfd);
  return box;
}

Answer LauncherTest::Terminate(Client& client, const Box& box, uint32_t deadline_ms) {
  Request request;
  request.op = Op::kTerminate;
  request.pid = box.pid;
  request.start_time = box.start_time;
  request.deadline_ms = deadline_ms;
  unlink(box.socket_path.c_str());
  return client.Call(request, box.CgroupPaths());
}

std::set<std::string> LauncherTest::Census() const {
  std::set<std::string> found;
  std::istringstream mounts(ReadWholeFile("/proc/self/mountinfo").value());
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(state_dir_) != line.npos) found.insert("mount " + line);
  }
  std::error_code error;
  std::set<std::string> parents{facts_.cgroups.v2_parent, facts_.cgroups.v1_memory,
                                facts_.cgroups.v1_cpu, facts_.cgroups.v1_pids,
                                facts_.cgroups.v1_freezer};
  for (const std::string& parent : parents) {
    if (parent.empty()) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) {
      if (entry.path().filename().string().starts_with("caisson-" + Prefix())) {
        found.insert("cgroup " + entry.path().string());
      }
    }
  }
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    std::string status = ReadWholeFile(entry.path().string() + "/status").value_or("");
    if (status.starts_with("Name:\tcaisson-launche")) continue;
    bool ours = status.find("PPid:\t" + std::to_string(getpid()) + "\n") != status.npos;
    size_t uid = status.find("Uid:\t");
    if (uid != status.npos && strtoul(status.c_str() + uid + 5, nullptr, 10) >= kFirstUid)
      ours = true;
    if (ours) found.insert("process " + name + " " + status.substr(0, status.find('\n')));
  }
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(state_dir_, error)) {
    if (entry.path() != state_dir_ + "/stage") found.insert("file " + entry.path().string());
  }
  return found;
}

void LauncherTest::ExpectCensusAsBefore() {
  // The kernel takes the last of a sandbox down by itself; on a busy host that takes its time.
  SystemClock clock;
  Deadline deadline = Deadline::After(clock, Millis(30'000));
  std::set<std::string> now;
  do {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    now = Census();
    if (now == before_) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (!deadline.Passed(clock));
  EXPECT_EQ(now, before_);
}

}  // namespace caisson::launcher::testing
