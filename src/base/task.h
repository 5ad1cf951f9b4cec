// Task<T>: a lazy coroutine. It starts when awaited and resumes its awaiter when it ends.
//
// Everything asynchronous in Caisson is a Task; what actually waits (sockets, timers, the store's
// writer) is behind an awaitable that resumes the coroutine on the event loop it was started on.
// Exceptions do not travel through tasks: a coroutine that throws ends the process. Third-party
// exceptions are caught where they arise and become an Error.
//
// Lifetime: a Task owns its frame; destroying it before it ended is allowed only while it is
// suspended at an awaitable that copes with it (see net/). Arguments taken by reference must
// outlive the task: prefer values for anything that crosses a suspension.
#pragma once

#include <coroutine>
#include <cstdlib>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace caisson {

template <typename T>
class Task;

namespace task_internal {

struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
    std::coroutine_handle<> continuation = self.promise().continuation;
    return continuation ? continuation : std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> continuation;
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() noexcept;
  template <typename U>
    requires std::is_constructible_v<T, U&&>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void Take() const noexcept {}
};

}  // namespace task_internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_internal::Promise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      if (handle_) handle_.destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Awaiting starts the task on the spot (symmetric transfer) and yields its result once.
  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
        handle.promise().continuation = awaiting;
        return handle;
      }
      T await_resume() const { return handle.promise().Take(); }
    };
    return Awaiter{handle_};
  }

 private:
  Handle handle_ = nullptr;
};

namespace task_internal {
template <typename T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// A coroutine that owns itself: runs at once, frees its frame at the end.
struct Detached {
  struct promise_type {
    Detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

template <typename T, typename Done>
Detached RunDetached(Task<T> task, Done done) {
  if constexpr (std::is_void_v<T>) {
    co_await std::move(task);
    done();
  } else {
    done(co_await std::move(task));
  }
}
}  // namespace task_internal

// Runs `task` on the calling thread until its first suspension; `done` gets the result when it
// ends. Only for the edges (an event loop's main, a task group): whoever calls it must make sure
// that everything the task uses lives until `done` was called.
template <typename T, typename Done>
void StartTask(Task<T> task, Done done) {
  task_internal::RunDetached(std::move(task), std::move(done));
}

}  // namespace caisson
