// The server's side of the launcher protocol (launcher/protocol.h): starts caisson-launcher and
// talks to it from an event loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/subprocess.h"
#include "base/task.h"
#include "base/until.h"
#include "launcher/plan.h"
#include "launcher/protocol.h"
#include "net/loop.h"
#include "net/task_group.h"

namespace caisson::sandbox::local {

// Names a process for good: pids are reused, a pid with its start time is not.
struct ProcessRef {
  int32_t pid = 0;
  uint64_t start_time = 0;
};

// Belongs to one loop. Start it, use it, Stop() it before it is destroyed.
class LauncherClient {
 public:
  enum class Mode : uint8_t {
    kKeep,       // sandboxes outlive the launcher and the server
    kEphemeral,  // everything ends with this client
  };
  static Result<std::unique_ptr<LauncherClient>> Start(net::Loop& loop, const std::string& program,
                                                       const std::string& state_dir, Mode mode);
  ~LauncherClient();

  // What a sandbox is made from besides its plan; the descriptors stay the caller's.
  struct CreateInput {
    int guest_program = -1;
    int listen_socket = -1;
    int token_file = -1;
    int config_file = -1;
    int command_filter = -1;
  };
  struct Created {
    ProcessRef process;
    UniqueFd pidfd;
    std::vector<std::pair<launcher::LaunchStep, Micros>> steps;
  };
  // Waits for the launcher's answer whatever happens (it has a deadline of its own), so that
  // nothing is ever made and forgotten. kLaunchFailed names the step.
  Task<Result<Created>> Create(const launcher::LaunchPlan& plan, CreateInput input);

  // True: the process and the cgroups are confirmed gone. False: pending, ask again.
  Task<Result<bool>> Terminate(ProcessRef process, std::vector<std::string> cgroup_dirs,
                               Until until);
  // kSandboxLost when that very process is not there any more.
  Task<Result<UniqueFd>> Find(ProcessRef process, Until until);
  // `path` is relative to the state directory. For workspaces, which no sandbox has yet.
  Task<Result<void>> RemoveTree(std::string path, Until until);

  // Closes the channel and waits for the launcher's end; in kEphemeral mode all sandboxes are gone
  // then.
  Task<Result<void>> Stop(Until until);

 private:
  struct Answer {
    launcher::Reply reply;
    std::string text;
    UniqueFd descriptor;
  };
  struct Pending {
    explicit Pending(net::Loop& loop) : arrived(loop) {}
    net::Notification arrived;
    std::optional<Answer> answer;
  };

  LauncherClient(net::Loop& loop, ChildProcess process, net::Descriptor socket);
  Task<Result<Answer>> Ask(launcher::Request request, std::string text,
                           std::vector<int> descriptors, Until until);
  Task<void> ReadAnswers();
  Result<bool> ReadOneAnswer();

  net::Loop& loop_;
  ChildProcess process_;
  std::optional<net::Descriptor> socket_;
  net::TaskGroup tasks_;
  std::map<uint32_t, std::shared_ptr<Pending>> pending_;
  uint32_t next_id_ = 1;
  bool lost_ = false;
};

}  // namespace caisson::sandbox::local
