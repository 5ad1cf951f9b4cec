// Dialers for the kinds of addresses there are.
#pragma once

#include <string>
#include <utility>

#include "net/loop.h"
#include "net/stream.h"

namespace caisson::net {

// A unix socket by its path. The loop outlives it.
class UnixDialer final : public Dialer {
 public:
  UnixDialer(Loop& loop, std::string path) : loop_(loop), path_(std::move(path)) {}
  Task<Result<StreamPtr>> Dial(Until until) override {
    return DialUnix(loop_, path_, std::move(until));
  }

 private:
  Loop& loop_;
  const std::string path_;
};

}  // namespace caisson::net
