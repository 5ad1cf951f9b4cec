// The spawner: a small process that starts commands. Whoever started the guest started it too
// (`caisson-guest spawn`), or the guest forks it.
//
// Commands inherit its cgroup, not the guest's, and a fork of it costs little however large the
// guest has grown. It makes commands children of the guest itself (CLONE_PARENT), so that the guest
// waits for them; with supervision, it makes a supervisor instead (supervisor.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/config.h"
#include "guest/launch.h"
#include "guest/loop.h"

namespace caisson::guest {

// A nameless file that holds `content`, readable for everybody who is given it: in memory, or in
// /tmp where that is not permitted.
Result<UniqueFd> MakeAnonymousFile(const char* name, std::string_view content);

// What to start. Descriptors are borrowed until Start returns.
struct SpawnRequest {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "NAME=value"
  std::string cwd;
  int stdio[3] = {-1, -1, -1};
  int script = -1;   // becomes descriptor 3
  int cgroup = -1;   // cgroup-v2 directory to be born in
  int control = -1;  // a supervisor's socket: supervised
  bool terminal = false;
  uint32_t umask = 022;
};

struct SpawnOutcome {
  pid_t pid = -1;  // of the command, or of its supervisor
  LaunchFailure failure;
};

class Spawner {
 public:
  using Done = std::function<void(const SpawnOutcome&)>;

  // Forks the process. The user and the filter are fixed for its life.
  Result<void> Fork(const CommandUser& user, int filter);
  // Takes one that runs already; `socket` is the guest's end of its pair.
  void Adopt(UniqueFd socket) { socket_ = std::move(socket); }
  // Blocks until the process has said that it is there.
  Result<void> AwaitUp();
  // From now on answers are taken; `lost` is called once if the process dies.
  Result<void> Attach(Loop& loop, std::function<void()> lost);
  // `done` is called later, once. Requests are answered in their order.
  Result<void> Start(const SpawnRequest& request, Done done);
  // Asked for and not answered: an unknown child that ended may be one of these.
  bool pending() const { return !waiting_.empty(); }

 private:
  void ReadAnswers();

  Loop* loop_ = nullptr;
  UniqueFd socket_;
  uint64_t next_ = 1;
  std::map<uint64_t, Done> waiting_;
  std::function<void()> lost_;
};

// `caisson-guest spawn`: serves the guest at the other end of config.spawner. Returns on failure.
Result<void> RunSpawner(const Config& config);

}  // namespace caisson::guest
