// Starts other programs of the host (the launcher, later crun, skopeo): the one place that does.
//
// posix_spawn (vfork-style, cheap from a large process), fixed argv, an empty environment unless
// given, every descriptor closed but the ones named, a pidfd for waiting. Nothing goes through a
// shell.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace caisson {

struct SpawnSpec {
  std::string program;                   // absolute path
  std::vector<std::string> arguments;    // argv[1] and on
  std::vector<std::string> environment;  // "NAME=value"
  std::string argv0;                     // empty: the program's path
  struct Descriptor {
    int child_fd;  // number in the child
    int own_fd;    // of this process; stays owned by the caller
  };
  // Descriptors of the child. 0, 1 and 2 are /dev/null where not named.
  std::vector<Descriptor> descriptors;
  bool new_session = false;
};

struct ExitStatus {
  int code = 0;    // exit code, or 0 when a signal ended it
  int signal = 0;  // the signal that ended it, or 0
  bool ok() const { return code == 0 && signal == 0; }
};

// A started process. Destroying it kills (SIGKILL) and reaps what still runs, unless Detach() was
// called. Not thread-safe.
class ChildProcess {
 public:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Readable (poll) when the process has ended.
  int pidfd() const { return pidfd_.get(); }
  Result<void> Signal(int signal) const;
  // Blocks until the end or the deadline (kDeadlineExceeded; the process runs on). Not for loops.
  Result<ExitStatus> Wait(const Clock& clock, Deadline deadline);
  // Lets it live on after this object; nobody will reap it but init.
  void Detach();

 private:
  void KillAndReap();
  pid_t pid_ = -1;
  UniqueFd pidfd_;
};

Result<ChildProcess> Spawn(const SpawnSpec& spec);

struct CommandOutput {
  ExitStatus status;
  std::string out;
  std::string err;
};
// Runs to the end with `input` as stdin, both outputs read, at most `limit` bytes each
// (kFileTooLarge beyond; the process is killed). Blocks; not for event loops.
Result<CommandOutput> RunCommand(const SpawnSpec& spec, std::string_view input, size_t limit,
                                 const Clock& clock, Deadline deadline);

}  // namespace caisson
