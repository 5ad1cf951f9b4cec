// How long a wait may last: a deadline and a stop token, which every wait in Caisson has.
#pragma once

#include <stop_token>
#include <utility>

#include "base/clock.h"

namespace caisson {

struct Until {
  Deadline deadline;
  std::stop_token stop;

  Until(Deadline until, std::stop_token token) : deadline(until), stop(std::move(token)) {}
  explicit Until(Deadline until) : deadline(until) {}
  // The same stop token with a nearer deadline, if that is nearer.
  Until Within(const Clock& clock, Millis timeout) const {
    return {deadline.Earlier(Deadline::After(clock, timeout)), stop};
  }
};

}  // namespace caisson
