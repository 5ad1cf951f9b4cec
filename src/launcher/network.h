// The sandbox's network namespace: empty but for loopback, which is up.
#pragma once

#include "base/unique_fd.h"
#include "launcher/attempt.h"

namespace caisson::launcher {

// Brings "lo" of the calling process's network namespace up.
Attempt<void> LoopbackUp();

// Namespaces made ahead: making one is the slowest step of a sandbox. Each is used once. For a
// launcher with the right to make them outside of a user namespace (root). A process of its own
// makes them, which runs only while a processor has nothing else to do: nobody waits for it. It
// starts with the second sandbox, since a launcher may be there for one alone, and ends with the
// pool or its launcher.
class NetworkPool {
 public:
  NetworkPool() = default;
  NetworkPool(const NetworkPool&) = delete;
  NetworkPool& operator=(const NetworkPool&) = delete;
  ~NetworkPool();

  // A ready namespace; invalid when there is none, and the caller makes its own. Does not wait.
  UniqueFd Take();

 private:
  static constexpr int kReady = 4;
  void Start();
  // Lets the maker make one more.
  bool Order();
  void Stop();

  UniqueFd maker_;  // SEQPACKET: one byte there for each ordered, one descriptor back
  UniqueFd pidfd_;
  int demand_ = 0;  // calls of Take() before the start
};

}  // namespace caisson::launcher
