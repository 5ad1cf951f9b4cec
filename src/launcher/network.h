// The sandbox's network namespace: empty but for loopback, which is up.
#pragma once

#include <vector>

#include "base/unique_fd.h"
#include "launcher/attempt.h"

namespace caisson::launcher {

// Brings "lo" of the calling process's network namespace up.
Attempt<void> LoopbackUp();

// Namespaces made ahead, while nobody waits: making one is the slowest step of a sandbox. Each is
// used once. For a launcher with the right to make them outside of a user namespace (root).
class NetworkPool {
 public:
  // A ready namespace; invalid when there is none, and the caller makes its own.
  UniqueFd Take();
  // The next Fill() would make one: there was demand, and some room is left.
  bool wants() const { return !failed_ && demanded_ && ready_.size() < kReady; }
  // Makes one. The calling process visits it and comes back; it must be single-threaded. Ends the
  // process if it cannot come back.
  void Fill();

 private:
  static constexpr size_t kReady = 4;
  std::vector<UniqueFd> ready_;
  bool demanded_ = false;
  bool failed_ = false;
};

}  // namespace caisson::launcher
