// The launcher's loop: requests in, replies out, any number of creations and endings under way.
// One thread; nothing in it waits but epoll.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/attempt.h"
#include "launcher/contain.h"
#include "launcher/network.h"
#include "launcher/protocol.h"
#include "launcher/terminate.h"

namespace caisson::launcher {

struct ServerOptions {
  int state_dir = -1;  // kRemoveTree works below it
  int null_fd = -1;
  int own_pidfd = -1;
  bool ephemeral = false;  // end all sandboxes when the control socket closes
};

class Server {
 public:
  explicit Server(const ServerOptions& options) : options_(options) {}

  // Serves kControlFd until its other end closes and what was under way is finished.
  Attempt<void> Run();

 private:
  enum class Watch : uint64_t { kControl, kSync, kSandbox, kEnding, kRemoval };

  struct Creation {
    Request request;
    LaunchPlan plan;
    UniqueFd fds[kCreateFdCount];
    std::unique_ptr<StepClock> clock;
    std::vector<std::string> cgroups;
    NewProcess process;
    uint64_t start_time = 0;
    int64_t deadline_ms = 0;
    std::string heard;  // bytes from the sync socket that are not dealt with yet
  };
  struct Sandbox {
    int pid = 0;
    uint64_t start_time = 0;
    UniqueFd pidfd;
    std::vector<std::string> cgroups;
  };
  struct Removal {
    Request request;
    UniqueFd pidfd;
    std::string path;
    int64_t deadline_ms = 0;
    bool replied = false;
  };
  struct Outgoing {
    std::string bytes;
    UniqueFd fd;
  };

  static constexpr uint32_t kDefaultDeadlineMs = 10'000;
  static int64_t DeadlineOf(const Request& request);
  bool Add(int fd, Watch kind, uint64_t key);
  void Drop(int fd);
  int TimeoutMs() const;
  void OnTime();
  void OnEvent(Watch kind, uint64_t key, uint32_t events);

  void ReceiveRequests();
  void Handle(const Request& request, std::string text, UniqueFd (&fds)[kCreateFdCount]);
  void Create(const Request& request, UniqueFd (&fds)[kCreateFdCount]);
  Attempt<void> Prepare(Creation& creation, LaunchStep& step);
  void OnSync(uint64_t key);
  // What the new process said next; an error ends the creation.
  Attempt<void> Hear(Creation& creation, LaunchStep& step, bool closed, bool& ready);
  void Finish(uint64_t key);
  void FailCreation(Creation creation, LaunchStep step, const Trouble& trouble);
  void Terminate(const Request& request, std::string_view text);
  void Find(const Request& request);
  void Remove(const Request& request, std::string path);
  void OnRemoved(uint64_t key);
  void AddEnding(std::unique_ptr<Ending> ending);
  void AdvanceEnding(uint64_t key);
  void OnControlClosed();

  void Send(Reply reply, std::string_view text, UniqueFd fd = {});
  void Flush();

  ServerOptions options_;
  UniqueFd epoll_;
  bool closed_ = false;
  uint64_t next_key_ = 1;
  std::map<uint64_t, Creation> creations_;
  std::map<uint64_t, Sandbox> sandboxes_;
  std::map<uint64_t, std::unique_ptr<Ending>> endings_;
  std::map<uint64_t, Removal> removals_;
  NetworkPool networks_;
  std::deque<Outgoing> outgoing_;
};

}  // namespace caisson::launcher
