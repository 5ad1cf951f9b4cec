#include "launcher/terminate.h"

#include <algorithm>
#include <utility>

#include "launcher/cgroups.h"
#include "launcher/process.h"

namespace caisson::launcher {
namespace {

// From SIGKILL to a closer look. The kernel takes a millisecond or a few.
constexpr int64_t kPatienceMs = 20;

}  // namespace

Ending::Ending(UniqueFd pidfd, std::vector<std::string> cgroups, int64_t deadline_ms)
    : pidfd_(std::move(pidfd)), cgroups_(std::move(cgroups)), deadline_ms_(deadline_ms) {
  next_try_ms_ = NowMs();
  if (!pidfd_) return;
  Kill(pidfd_.get());
  next_try_ms_ += kPatienceMs;
}

void Ending::OnExit() {
  exit_status_ = Reap(pidfd_.get());
  pidfd_.reset();
  next_try_ms_ = NowMs();
}

bool Ending::Advance() {
  if (!pidfd_) {
    last_error_ = RemoveCgroups(cgroups_);
    if (last_error_ == 0) return true;
  }
  // It does not die (frozen), or something is still in there: a process that was put in from
  // outside, or one on its way out.
  KillCgroups(cgroups_);
  next_try_ms_ = NowMs() + back_off_ms_;
  back_off_ms_ = std::min<int64_t>(back_off_ms_ * 2, 100);
  return false;
}

}  // namespace caisson::launcher
