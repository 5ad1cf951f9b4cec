// The right to write as the owner of a run. Only the store makes one (ClaimRun), so code that was
// not given a claim cannot write as if it had one.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/scope.h"

namespace caisson::store {

class Fence {
 public:
  const Scope& scope() const { return scope_; }
  const SessionId& session() const { return session_; }
  const RunId& run() const { return run_; }
  // Greater than that of every earlier owner; goes with calls to the guest.
  uint64_t value() const { return value_; }

 private:
  friend class FenceMaker;  // of the drivers, see store/fence_maker.h
  Fence(Scope scope, SessionId session, RunId run, uint64_t value)
      : scope_(std::move(scope)),
        session_(std::move(session)),
        run_(std::move(run)),
        value_(value) {}
  Scope scope_;
  SessionId session_;
  RunId run_;
  uint64_t value_;
};

}  // namespace caisson::store
