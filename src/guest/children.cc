#include "guest/children.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace caisson::guest {

Result<void> Children::Init(Loop& loop, std::function<void()> terminate) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGCHLD);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) return Fail(ErrnoError(errno, "signalfd"));
  return loop.Watch(signals_.get(), EPOLLIN, [this, terminate = std::move(terminate)](uint32_t) {
    signalfd_siginfo info;
    bool over = false;
    while (::read(signals_.get(), &info, sizeof info) > 0) over |= info.ssi_signo == SIGTERM;
    Reap();
    if (over) terminate();
  });
}

void Children::Watch(pid_t pid, std::function<void(const ChildEnd&)> done) {
  if (auto it = early_.find(pid); it != early_.end()) {
    ChildEnd end = it->second;
    early_.erase(it);
    done(end);
    return;
  }
  watched_[pid] = std::move(done);
}

void Children::Reap() {
  bool expecting = expecting_ && expecting_();
  if (!expecting) early_.clear();
  bool orphan = false;
  for (;;) {
    int status = 0;
    rusage usage{};
    pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) break;
    ChildEnd end;
    end.status = status;
    end.cpu_ms = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                 (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
    end.max_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
    auto it = watched_.find(pid);
    if (it == watched_.end()) {
      orphan = true;
      if (expecting) early_[pid] = end;
      continue;
    }
    auto done = std::move(it->second);
    watched_.erase(it);
    done(end);
  }
  if (orphan && on_orphan_) on_orphan_();
}

}  // namespace caisson::guest
