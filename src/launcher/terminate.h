// The end of a sandbox: its first process killed (the kernel then kills the whole pid namespace),
// its exit awaited, its cgroups removed. Idempotent; driven by events, never waiting itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/protocol.h"

namespace caisson::launcher {

class Ending {
 public:
  // `pidfd` is empty when there is no process (any more). Kills at once.
  Ending(UniqueFd pidfd, std::vector<std::string> cgroups, int64_t deadline_ms);

  // To be called when the pidfd is readable. Reaps it if it is a child of the launcher.
  void OnExit();
  // At next_try_ms(): removes what can be removed. True: everything is gone.
  bool Advance();

  int pidfd() const { return pidfd_.get(); }  // -1 once the process has ended
  int64_t deadline_ms() const { return deadline_ms_; }
  // When Advance() is to be called next.
  int64_t next_try_ms() const { return next_try_ms_; }
  int last_error() const { return last_error_; }
  int exit_status() const { return exit_status_; }  // as Reap() says; 0 unknown

  // What is sent when it is done (or at the deadline), and the text with it. `replied` afterwards.
  Reply reply;
  std::string text;
  bool replied = false;
  // A failed creation is cleaned up past its deadline too; a kTerminate may be asked again.
  bool endless = false;

 private:
  UniqueFd pidfd_;
  std::vector<std::string> cgroups_;
  int64_t deadline_ms_;
  int64_t next_try_ms_ = 0;
  int64_t back_off_ms_ = 1;
  int last_error_ = 0;
  int exit_status_ = 0;
};

}  // namespace caisson::launcher
