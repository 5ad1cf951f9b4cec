// The event loop: one a thread. Everything that waits does so on one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/task.h"
#include "base/unique_fd.h"
#include "base/until.h"
#include "net/stream.h"

namespace caisson::net {

// Runs on the thread that calls Run(). Only Post, Stop and clock may be called from others.
class Loop {
 public:
  explicit Loop(const Clock& clock);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs until Stop(). May be called again after it returned.
  void Run();
  void Stop();
  // Calls `work` on the loop's thread, later. Thread-safe.
  void Post(std::move_only_function<void()> work);
  const Clock& clock() const { return clock_; }
  // The loop whose Run() is on this thread's stack, or null.
  static Loop* Current();

  // Ok at the deadline; kCancelled when stopped before.
  Task<Result<void>> Sleep(Until until);
  // Moves the calling coroutine to this loop's thread.
  Task<void> Enter();

 private:
  friend class Descriptor;
  friend class Notification;
  struct Impl;
  const Clock& clock_;
  std::unique_ptr<Impl> impl_;
};

// Runs `task` on `loop` until it has ended: for main programs and tests.
template <typename T>
T RunUntilDone(Loop& loop, Task<T> task) {
  std::optional<T> value;
  loop.Post([&] {
    StartTask(std::move(task), [&](T result) {
      value.emplace(std::move(result));
      loop.Stop();
    });
  });
  loop.Run();
  return std::move(*value);
}

// An owned non-blocking descriptor registered with a loop: sockets, pidfds, pipes.
class Descriptor {
 public:
  // Makes `fd` non-blocking.
  static Result<Descriptor> Make(Loop& loop, UniqueFd fd);
  // Leaves its flags as they are: for a descriptor that other programs share (standard input and
  // output), where the flag would change it for them, too. Only waiting is safe then.
  static Result<Descriptor> Watch(Loop& loop, UniqueFd fd);
  Descriptor(Descriptor&&) noexcept;
  Descriptor& operator=(Descriptor&&) noexcept;
  ~Descriptor();

  int fd() const;
  Loop& loop() const { return *loop_; }
  // Until reading (writing) would not block: data, end of stream or an error to be fetched.
  // One of each may wait at a time. kDeadlineExceeded, kCancelled.
  Task<Result<void>> WaitReadable(Until until);
  Task<Result<void>> WaitWritable(Until until);

 private:
  struct Impl;
  Descriptor(Loop& loop, std::unique_ptr<Impl> impl);
  Loop* loop_;
  std::unique_ptr<Impl> impl_;
};

// Set once; whoever waits, before or after, goes on. For one waiter, on the loop's thread.
class Notification {
 public:
  explicit Notification(Loop& loop) : loop_(&loop) {}
  Notification(const Notification&) = delete;
  Notification& operator=(const Notification&) = delete;
  ~Notification();

  void Set();
  bool is_set() const { return set_; }
  Task<Result<void>> Wait(Until until);

 private:
  Loop* loop_;
  bool set_ = false;
  std::weak_ptr<void> waiting_;
};

// A stream over a connected socket.
Result<StreamPtr> MakeStream(Loop& loop, UniqueFd socket);

class Listener {
 public:
  explicit Listener(Descriptor socket) : socket_(std::move(socket)) {}
  // The next connection. Errors of one connection are not given; running out of descriptors is
  // waited out.
  Task<Result<StreamPtr>> Accept(Until until);
  // Of a TCP listener: what port 0 became.
  Result<uint16_t> Port() const;

 private:
  Descriptor socket_;
};

// `address` is a numeric IPv4 or IPv6 address. kAddressInUse names it.
Result<Listener> ListenTcp(Loop& loop, const std::string& address, uint16_t port);

// A listening unix socket at `path` (mode 0600), as a blocking descriptor to be passed on. The
// path is at most 107 bytes; use a short directory.
Result<UniqueFd> ListenUnixSocket(const std::string& path);
Task<Result<StreamPtr>> DialUnix(Loop& loop, std::string path, Until until);
Task<Result<StreamPtr>> DialTcp(Loop& loop, std::string address, uint16_t port, Until until);

}  // namespace caisson::net
