// The event loop: epoll and timers. Single-threaded; everything in the guest runs on it.
//
// Handlers may watch, forget and close any descriptor, their own included, and may start or cancel
// timers. A handler must do only bounded work (about 1 ms or 1 MiB) before it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace caisson::guest {

int64_t MonotonicMs();
int64_t UnixMs();

class Loop {
 public:
  using Handler = std::function<void(uint32_t events)>;  // EPOLL* bits
  struct TimerId {
    int64_t deadline_ms = 0;
    uint64_t serial = 0;  // 0: no timer
  };

  Result<void> Init();
  // Calls `handler` while any of `events` holds (level-triggered). Replaces an earlier watch of
  // the same descriptor. The descriptor stays the caller's; Forget it before closing it.
  Result<void> Watch(int fd, uint32_t events, Handler handler);
  void Modify(int fd, uint32_t events);
  void Forget(int fd);

  TimerId After(int64_t delay_ms, std::function<void()> callback);
  // No effect on a timer that has fired; resets `id`.
  void Cancel(TimerId& id);
  // Runs after the handlers of this round: for destroying what is on the call stack now.
  void Defer(std::function<void()> callback);

  // Until Stop.
  void Run();
  void Stop() { stopped_ = true; }

 private:
  struct Entry {
    Handler handler;
    uint32_t events = 0;
    uint32_t generation = 0;
  };

  int WaitMs() const;
  void FireTimers();
  void RunDeferred();

  UniqueFd epoll_;
  // By descriptor. A generation tells an event of a closed descriptor from one of its successor.
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> retired_;  // may be on the call stack
  uint32_t next_generation_ = 1;
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> timers_;
  uint64_t next_timer_ = 1;
  std::vector<std::function<void()>> deferred_;
  bool stopped_ = false;
};

}  // namespace caisson::guest
