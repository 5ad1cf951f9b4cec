// For the drivers of the store alone: makes the Fence of a claim that the database has granted.
#pragma once

#include <utility>

#include "store/fence.h"

namespace caisson::store {

class FenceMaker {
 public:
  static Fence Make(Scope scope, SessionId session, RunId run, uint64_t value) {
    return Fence(std::move(scope), std::move(session), std::move(run), value);
  }
};

}  // namespace caisson::store
