// Background work that is stopped and joined: nothing in Caisson runs unobserved.
#pragma once

#include <coroutine>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <utility>

#include "base/task.h"

namespace caisson::net {

// Tasks of one loop. All calls on that loop's thread. Must be empty when destroyed: RequestStop,
// then co_await Join().
class TaskGroup {
 public:
  TaskGroup() = default;
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  std::stop_token stop() const { return source_.get_token(); }
  size_t size() const { return running_; }
  void RequestStop() { source_.request_stop(); }

  // Starts `task` at once. It should watch stop().
  void Start(Task<void> task) {
    running_++;
    StartTask(std::move(task), [this] {
      if (--running_ == 0 && joiner_) std::exchange(joiner_, nullptr).resume();
    });
  }
  // Yields when no task runs. One caller at a time.
  auto Join() {
    struct Awaiter {
      TaskGroup& group;
      bool await_ready() const { return group.running_ == 0; }
      void await_suspend(std::coroutine_handle<> waiter) const { group.joiner_ = waiter; }
      void await_resume() const {}
    };
    return Awaiter{*this};
  }

 private:
  size_t running_ = 0;
  std::coroutine_handle<> joiner_;
  std::stop_source source_;
};

}  // namespace caisson::net
