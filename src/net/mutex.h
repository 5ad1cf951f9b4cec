// Mutual exclusion among coroutines of one loop, across suspensions.
#pragma once

#include <coroutine>
#include <deque>
#include <utility>

namespace caisson::net {

// Not for threads. Waiters get it in the order they came; a waiting coroutine must not be
// destroyed.
class Mutex {
 public:
  class Guard {
   public:
    explicit Guard(Mutex* mutex) : mutex_(mutex) {}
    Guard(Guard&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (mutex_ != nullptr) mutex_->Unlock();
    }

   private:
    Mutex* mutex_;
  };

  // auto guard = co_await mutex.Lock();
  auto Lock() {
    struct Awaiter {
      Mutex& mutex;
      bool await_ready() const {
        if (mutex.locked_) return false;
        mutex.locked_ = true;
        return true;
      }
      void await_suspend(std::coroutine_handle<> waiter) const { mutex.waiters_.push_back(waiter); }
      Guard await_resume() const { return Guard(&mutex); }
    };
    return Awaiter{*this};
  }

 private:
  void Unlock() {
    if (waiters_.empty()) {
      locked_ = false;
      return;
    }
    std::coroutine_handle<> next = waiters_.front();
    waiters_.pop_front();
    next.resume();  // it holds the lock from here on
  }
  bool locked_ = false;
  std::deque<std::coroutine_handle<>> waiters_;
};

}  // namespace caisson::net
