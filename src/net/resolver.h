// Names to addresses, off the loop.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"

namespace caisson::net {

// The system's resolver (getaddrinfo: files, DNS, whatever the host is set up for) on two threads.
// Thread-safe. Destroying it waits for lookups under way.
class Resolver {
 public:
  Resolver();
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Numeric addresses, in the order of preference; at least one. A numeric `host` is given back
  // as it is, "localhost" and what ends in ".localhost" is loopback. kUnavailable when the name has
  // none; kOverloaded when too many lookups wait.
  Task<Result<std::vector<std::string>>> Resolve(std::string host, Until until);

 private:
  void Main();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace caisson::net
