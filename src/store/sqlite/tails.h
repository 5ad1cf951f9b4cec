// Who waits for a session's log to grow.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/loop.h"

namespace caisson::store::sqlite {

// Thread-safe. A waiter registers before it looks at the log, so that nothing falls in between.
class Tails {
 public:
  class Waiter {
   public:
    explicit Waiter(net::Loop& loop) : loop_(loop), grown_(loop) {}
    Task<Result<void>> Wait(Until until) { return grown_.Wait(std::move(until)); }

   private:
    friend class Tails;
    net::Loop& loop_;
    net::Notification grown_;
  };

  // The registration ends with the last reference.
  std::shared_ptr<Waiter> Register(const std::string& session, net::Loop& loop) {
    auto waiter = std::make_shared<Waiter>(loop);
    std::lock_guard lock(mutex_);
    auto& list = waiters_[session];
    std::erase_if(list, [](const std::weak_ptr<Waiter>& old) { return old.expired(); });
    list.push_back(waiter);
    return waiter;
  }

  void Wake(const std::vector<std::string>& sessions) {
    std::lock_guard lock(mutex_);
    for (const std::string& session : sessions) {
      auto found = waiters_.find(session);
      if (found == waiters_.end()) continue;
      for (const std::weak_ptr<Waiter>& weak : found->second) {
        // Moved to its loop, where the last reference to it may go.
        if (auto waiter = weak.lock()) {
          net::Loop& loop = waiter->loop_;
          loop.Post([kept = std::move(waiter)] { kept->grown_.Set(); });
        }
      }
      waiters_.erase(found);
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::weak_ptr<Waiter>>> waiters_;
};

}  // namespace caisson::store::sqlite
