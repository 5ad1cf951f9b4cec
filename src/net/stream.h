// A byte stream in both directions: TCP, unix socket, TLS, later a multiplexed channel.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"

namespace caisson::net {

// Belongs to one event loop: all calls, and the resumption of their tasks, happen on its thread.
// One read and one write may be under way at a time. Destroying it closes it; no task of it may be
// suspended then, except one whose whole coroutine is destroyed with it.
class Stream {
 public:
  virtual ~Stream() = default;

  // At least one byte, or 0 at the end of the stream. kConnectionLost, kDeadlineExceeded,
  // kCancelled (stop token).
  virtual Task<Result<size_t>> Read(std::span<char> buffer, Until until) = 0;
  // All of `data`, which must stay valid until the task yields. After an error some of it may have
  // been sent.
  virtual Task<Result<void>> Write(std::string_view data, Until until) = 0;
  // Tells the peer that nothing more comes; reading goes on.
  virtual Task<Result<void>> CloseWrite(Until until) = 0;
  // True while the peer keeps it open and nothing it sent waits: fit for another request.
  virtual bool Quiet() const = 0;
};

using StreamPtr = std::unique_ptr<Stream>;

// Where new streams to one peer come from.
class Dialer {
 public:
  virtual ~Dialer() = default;
  virtual Task<Result<StreamPtr>> Dial(Until until) = 0;
};

}  // namespace caisson::net
