// Short-lived children for work that may be long: search, large files, whole trees. Each has the
// command user's real identity (but for what is the guest's own), one pipe, and a deadline after
// which it is killed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/children.h"
#include "guest/file_ops.h"
#include "guest/identity.h"
#include "guest/loop.h"

namespace caisson::guest {

enum class WorkerFate : uint8_t {
  kAnswered,  // `result` is its own
  kDeadline,  // killed; what it did until then is not known
  kDied,      // ended without a whole answer
};

inline constexpr int64_t kNoDeadline = INT64_MAX / 2;

class Workers {
 public:
  using Job = std::function<FileResult()>;
  using Done = std::function<void(WorkerFate fate, FileResult result)>;

  Workers(Loop& loop, Children& children, const Identity& identity)
      : loop_(loop), children_(children), identity_(identity) {}

  enum class Authority : uint8_t { kUser, kGuest };
  // Forks and runs `job` there. The descriptors of `keep` stay open in it beside the pipe. `done`
  // is called once, later.
  Result<void> Start(int64_t deadline_ms, std::vector<int> keep, const Job& job, Done done,
                     Authority authority = Authority::kUser);

 private:
  struct Running {
    UniqueFd pipe;
    pid_t pid = -1;
    std::string answer;
    bool timed_out = false;
    Loop::TimerId timer;
    Done done;
  };

  void OnReadable(uint64_t id);
  void Finish(uint64_t id);

  Loop& loop_;
  Children& children_;
  const Identity& identity_;
  std::map<uint64_t, std::unique_ptr<Running>> running_;
  uint64_t next_ = 1;
};

}  // namespace caisson::guest
