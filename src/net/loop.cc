#include "net/loop.h"

#include <fcntl.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>

namespace caisson::net {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

thread_local Loop* current_loop = nullptr;

enum class Outcome : uint8_t { kReady, kDeadline, kCancelled, kFailed };

// One suspended wait. Handlers of Asio hold it by shared_ptr and may run after the coroutine is
// gone; `waiter` is null by then.
struct WaitState {
  explicit WaitState(asio::io_context& context) : timer(context) {}

  void Finish(Outcome how) {
    if (finished) return;
    finished = true;
    outcome = how;
    timer.cancel();
    signal.emit(asio::cancellation_type::terminal);
    if (waiter) std::exchange(waiter, nullptr).resume();
  }
  void Abandon() {
    finished = true;
    waiter = nullptr;
    timer.cancel();
    signal.emit(asio::cancellation_type::terminal);
  }

  std::coroutine_handle<> waiter;
  Outcome outcome = Outcome::kReady;
  bool finished = false;
  asio::steady_timer timer;
  asio::cancellation_signal signal;
};

Result<void> ToResult(Outcome outcome) {
  switch (outcome) {
    case Outcome::kReady:
      return {};
    case Outcome::kDeadline:
      return Fail(ErrorCode::kDeadlineExceeded, "the deadline passed");
    case Outcome::kCancelled:
      return Fail(ErrorCode::kCancelled, "the operation was cancelled");
    case Outcome::kFailed:
      break;
  }
  return Fail(ErrorCode::kIo, "the event loop could not wait for a descriptor");
}

}  // namespace

struct Loop::Impl {
  asio::io_context context{1};
};

namespace {

// Suspends until `start` (given a WaitState) finishes it, the deadline, or the stop token.
template <typename Start>
class WaitAwaiter {
 public:
  WaitAwaiter(Loop& loop, asio::io_context& context, Until until, bool deadline_is_success,
              Start start)
      : loop_(loop),
        context_(context),
        until_(std::move(until)),
        deadline_is_success_(deadline_is_success),
        start_(std::move(start)) {}
  WaitAwaiter(const WaitAwaiter&) = delete;
  WaitAwaiter& operator=(const WaitAwaiter&) = delete;
  ~WaitAwaiter() {
    stop_callback_.reset();
    if (state_) state_->Abandon();
  }

  bool await_ready() const { return until_.stop.stop_requested(); }
  void await_suspend(std::coroutine_handle<> waiter) {
    state_ = std::make_shared<WaitState>(context_);
    state_->waiter = waiter;
    start_(state_);
    if (!until_.deadline.never()) {
      state_->timer.expires_at(until_.deadline.time());
      state_->timer.async_wait([state = state_, this_ok = deadline_is_success_](error_code error) {
        if (!error) state->Finish(this_ok ? Outcome::kReady : Outcome::kDeadline);
      });
    }
    if (until_.stop.stop_possible()) {
      // The token may fire on any thread; the state is touched on the loop's only.
      stop_callback_.emplace(until_.stop, StopHandler{&loop_, state_});
    }
  }
  Result<void> await_resume() {
    if (!state_) return ToResult(Outcome::kCancelled);
    return ToResult(state_->outcome);
  }

 private:
  struct StopHandler {
    Loop* loop;
    std::weak_ptr<WaitState> state;
    void operator()() const {
      loop->Post([weak = state] {
        if (auto locked = weak.lock()) locked->Finish(Outcome::kCancelled);
      });
    }
  };

  Loop& loop_;
  asio::io_context& context_;
  Until until_;
  bool deadline_is_success_;
  Start start_;
  std::shared_ptr<WaitState> state_;
  std::optional<std::stop_callback<StopHandler>> stop_callback_;
};

}  // namespace

Loop::Loop(const Clock& clock) : clock_(clock), impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

Loop* Loop::Current() { return current_loop; }

void Loop::Run() {
  Loop* outer = std::exchange(current_loop, this);
  auto guard = asio::make_work_guard(impl_->context);
  impl_->context.restart();
  impl_->context.run();
  current_loop = outer;
}

void Loop::Stop() { impl_->context.stop(); }

void Loop::Post(std::move_only_function<void()> work) {
  asio::post(impl_->context, [moved = std::move(work)]() mutable { moved(); });
}

Task<Result<void>> Loop::Sleep(Until until) {
  auto nothing = [](const std::shared_ptr<WaitState>&) {};
  co_return co_await WaitAwaiter(*this, impl_->context, std::move(until), true, nothing);
}

Task<void> Loop::Enter() {
  if (current_loop == this) co_return;
  struct Awaiter {
    Loop& loop;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) const {
      loop.Post([waiter] { waiter.resume(); });
    }
    void await_resume() const {}
  };
  co_await Awaiter{*this};
}

Notification::~Notification() = default;

void Notification::Set() {
  if (set_) return;
  set_ = true;
  if (auto waiting = waiting_.lock()) {
    // Resumed from the loop, not from inside the setter, which may hold on to things.
    loop_->Post(
        [state = std::static_pointer_cast<WaitState>(waiting)] { state->Finish(Outcome::kReady); });
  }
}

Task<Result<void>> Notification::Wait(Until until) {
  if (set_) co_return Result<void>();
  auto start = [this](const std::shared_ptr<WaitState>& state) { waiting_ = state; };
  co_return co_await WaitAwaiter(*loop_, loop_->impl_->context, std::move(until), false, start);
}

struct Descriptor::Impl {
  Impl(asio::io_context& io, int fd) : context(io), descriptor(io, fd) {}
  Task<Result<void>> Wait(Loop& loop, asio::posix::stream_descriptor::wait_type type, Until until) {
    auto start = [this, type](const std::shared_ptr<WaitState>& state) {
      descriptor.async_wait(
          type, asio::bind_cancellation_slot(state->signal.slot(), [state](error_code error) {
            state->Finish(error ? Outcome::kFailed : Outcome::kReady);
          }));
    };
    co_return co_await WaitAwaiter(loop, context, std::move(until), false, start);
  }
  asio::io_context& context;
  asio::posix::stream_descriptor descriptor;
};

Descriptor::Descriptor(Loop& loop, std::unique_ptr<Impl> impl)
    : loop_(&loop), impl_(std::move(impl)) {}
Descriptor::Descriptor(Descriptor&&) noexcept = default;
Descriptor& Descriptor::operator=(Descriptor&&) noexcept = default;
Descriptor::~Descriptor() = default;

Result<Descriptor> Descriptor::Make(Loop& loop, UniqueFd fd) {
  int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return Fail(ErrnoError(errno, "make a descriptor non-blocking"));
  }
  return Watch(loop, std::move(fd));
}

Result<Descriptor> Descriptor::Watch(Loop& loop, UniqueFd fd) {
  // Asio registers with epoll here and throws when the kernel refuses.
  try {
    auto impl = std::make_unique<Impl>(loop.impl_->context, fd.get());
    (void)fd.release();
    return Descriptor(loop, std::move(impl));
  } catch (const boost::system::system_error& error) {
    return Fail(ErrorCode::kIo, "the event loop cannot watch a descriptor", error.what());
  }
}

int Descriptor::fd() const {
  return const_cast<asio::posix::stream_descriptor&>(impl_->descriptor).native_handle();
}

Task<Result<void>> Descriptor::WaitReadable(Until until) {
  return impl_->Wait(*loop_, asio::posix::stream_descriptor::wait_read, std::move(until));
}
Task<Result<void>> Descriptor::WaitWritable(Until until) {
  return impl_->Wait(*loop_, asio::posix::stream_descriptor::wait_write, std::move(until));
}

}  // namespace caisson::net
