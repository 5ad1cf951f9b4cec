// The guest's children: one place that waits for them, orphans included.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/loop.h"

namespace caisson::guest {

struct ChildEnd {
  int status = 0;  // of waitpid
  int64_t cpu_ms = 0;
  int64_t max_rss_bytes = 0;
};

class Children {
 public:
  // Blocks SIGCHLD and takes it by descriptor; SIGTERM calls `terminate`.
  Result<void> Init(Loop& loop, std::function<void()> terminate);
  // `done` is called once when that child ends, also if it has ended already while Expect held.
  void Watch(pid_t pid, std::function<void(const ChildEnd&)> done);
  void Forget(pid_t pid) { watched_.erase(pid); }
  // While true, the ends of unknown children are kept: their names are still to come.
  void Expect(std::function<bool()> expecting) { expecting_ = std::move(expecting); }
  // Called after every round in which an unknown child (an orphan) ended.
  void OnOrphan(std::function<void()> callback) { on_orphan_ = std::move(callback); }

 private:
  void Reap();

  UniqueFd signals_;
  std::map<pid_t, std::function<void(const ChildEnd&)>> watched_;
  std::map<pid_t, ChildEnd> early_;
  std::function<bool()> expecting_;
  std::function<void()> on_orphan_;
};

}  // namespace caisson::guest
