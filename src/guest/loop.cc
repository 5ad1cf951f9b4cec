#include "guest/loop.h"

#include <sys/epoll.h>
#include <time.h>

#include <cerrno>
#include <utility>

namespace caisson::guest {
namespace {

int64_t ClockMs(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

int64_t MonotonicMs() { return ClockMs(CLOCK_MONOTONIC); }
int64_t UnixMs() { return ClockMs(CLOCK_REALTIME); }

Result<void> Loop::Init() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Fail(ErrnoError(errno, "epoll_create1"));
  return {};
}

Result<void> Loop::Watch(int fd, uint32_t events, Handler handler) {
  auto index = static_cast<size_t>(fd);
  if (index >= entries_.size()) entries_.resize(index + 8);
  bool known = entries_[index] != nullptr;
  if (known) retired_.push_back(std::move(entries_[index]));
  uint32_t generation = next_generation_++;
  entries_[index] = std::make_unique<Entry>(Entry{std::move(handler), events, generation});
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(generation) << 32 | static_cast<uint32_t>(fd);
  if (::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
    int error = errno;
    entries_[index].reset();
    return Fail(ErrnoError(error, "epoll_ctl"));
  }
  return {};
}

void Loop::Modify(int fd, uint32_t events) {
  auto index = static_cast<size_t>(fd);
  if (index >= entries_.size() || entries_[index] == nullptr) return;
  Entry& entry = *entries_[index];
  if (entry.events == events) return;
  entry.events = events;
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(entry.generation) << 32 | static_cast<uint32_t>(fd);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Loop::Forget(int fd) {
  auto index = static_cast<size_t>(fd);
  if (fd < 0 || index >= entries_.size() || entries_[index] == nullptr) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  retired_.push_back(std::move(entries_[index]));
}

Loop::TimerId Loop::After(int64_t delay_ms, std::function<void()> callback) {
  TimerId id{MonotonicMs() + delay_ms, next_timer_++};
  timers_.emplace(std::pair(id.deadline_ms, id.serial), std::move(callback));
  return id;
}

void Loop::Cancel(TimerId& id) {
  if (id.serial != 0) timers_.erase(std::pair(id.deadline_ms, id.serial));
  id = TimerId();
}

void Loop::Defer(std::function<void()> callback) { deferred_.push_back(std::move(callback)); }

int Loop::WaitMs() const {
  if (!deferred_.empty()) return 0;
  if (timers_.empty()) return -1;
  int64_t left = timers_.begin()->first.first - MonotonicMs();
  if (left <= 0) return 0;
  return left > 60'000 ? 60'000 : static_cast<int>(left);
}

void Loop::FireTimers() {
  int64_t now = MonotonicMs();
  // Timers that a callback starts are left for the next round, else one could starve the loop.
  uint64_t limit = next_timer_;
  auto it = timers_.begin();
  while (it != timers_.end() && it->first.first <= now) {
    if (it->first.second >= limit) {
      ++it;
      continue;
    }
    std::function<void()> callback = std::move(it->second);
    timers_.erase(it);
    callback();
    it = timers_.begin();
  }
}

void Loop::RunDeferred() {
  std::vector<std::function<void()>> callbacks = std::exchange(deferred_, {});
  for (auto& callback : callbacks) callback();
}

void Loop::Run() {
  constexpr int kBatch = 32;
  epoll_event events[kBatch];
  while (!stopped_) {
    int count = ::epoll_wait(epoll_.get(), events, kBatch, WaitMs());
    for (int i = 0; i < count && !stopped_; i++) {
      auto index = static_cast<size_t>(events[i].data.u64 & 0xFFFFFFFF);
      auto generation = static_cast<uint32_t>(events[i].data.u64 >> 32);
      if (index >= entries_.size() || entries_[index] == nullptr ||
          entries_[index]->generation != generation) {
        continue;
      }
      entries_[index]->handler(events[i].events);
    }
    FireTimers();
    RunDeferred();
    retired_.clear();
  }
}

}  // namespace caisson::guest
