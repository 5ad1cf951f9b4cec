// Time, injected. Nothing but this header's implementations reads a clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson {

// Wall-clock time with the microsecond resolution of every `…_at` field.
using WallTime = std::chrono::sys_time<std::chrono::microseconds>;
// Never goes back; for deadlines and durations.
using MonoTime = std::chrono::steady_clock::time_point;
using Millis = std::chrono::milliseconds;
using Micros = std::chrono::microseconds;

// Thread-safe. The implementation given to a component outlives it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual WallTime Now() const = 0;
  virtual MonoTime MonoNow() const = 0;
};

class SystemClock final : public Clock {
 public:
  WallTime Now() const override;
  MonoTime MonoNow() const override;
};

// Stands still until told otherwise; for tests. Not thread-safe while being moved.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(WallTime start) : now_(start) {}
  WallTime Now() const override { return now_; }
  MonoTime MonoNow() const override { return mono_; }
  void Advance(Micros by) {
    now_ += by;
    mono_ += by;
  }

 private:
  WallTime now_;
  MonoTime mono_{};
};

// A point in time after which waiting ends. Every wait in Caisson takes one.
class Deadline {
 public:
  static Deadline After(const Clock& clock, Millis timeout) {
    return Deadline(clock.MonoNow() + timeout);
  }
  static Deadline At(MonoTime time) { return Deadline(time); }
  // For waits that end by a stop token alone, e.g. accepting connections.
  static Deadline Never() { return Deadline(MonoTime::max()); }

  MonoTime time() const { return time_; }
  bool never() const { return time_ == MonoTime::max(); }
  bool Passed(const Clock& clock) const { return clock.MonoNow() >= time_; }
  Deadline Earlier(Deadline other) const { return Deadline(std::min(time_, other.time_)); }

 private:
  explicit Deadline(MonoTime time) : time_(time) {}
  MonoTime time_;
};

// RFC 3339 in UTC with microseconds: "2026-11-30T14:21:03.123456Z".
std::string FormatTime(WallTime time);
// The same form, with zero to six fractional digits and only "Z" as zone; kInvalidArgument
// otherwise.
Result<WallTime> ParseTime(std::string_view text);

}  // namespace caisson
