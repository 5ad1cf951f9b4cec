// A thread that owns one connection and runs jobs on it, in order.
//
// Writers: group commit. A batch is what is queued when the thread becomes free; each job has a
// savepoint of its own, so that one that fails undoes itself only; then one COMMIT makes all of
// them durable, and only then is any of them answered. A batch of jobs that need not be durable is
// written and not flushed; the next that is flushes it too.
#pragma once

#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "net/loop.h"
#include "store/sqlite/database.h"
#include "store/store.h"

namespace caisson::store::sqlite {

class Worker {
 public:
  enum class Kind : uint8_t { kWriter, kReader };
  // `committed` is called on the thread after each batch of a writer. A writer's connection comes
  // with the `synchronous` that makes a commit durable; `flushes` is false when that is NORMAL.
  Worker(Kind kind, std::unique_ptr<Database> database, bool flushes,
         std::function<void()> committed);
  // Finishes what is queued, then ends the thread.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Runs `work(Database&) -> Result<T>` on the thread and resumes the caller on its loop.
  template <typename T, typename Work>
  StoreTask<T> Run(Work work, bool durable = true) {
    struct State {
      std::optional<Result<T>> result;
      std::coroutine_handle<> waiter;  // touched on the loop's thread only
    };
    struct Awaiter {
      Worker& worker;
      Work work;
      bool durable;
      std::shared_ptr<State> state = std::make_shared<State>();
      ~Awaiter() { state->waiter = nullptr; }
      bool await_ready() const { return false; }
      bool await_suspend(std::coroutine_handle<> waiter) {
        state->waiter = waiter;
        net::Loop* loop = net::Loop::Current();
        Job job;
        job.durable = durable;
        job.run = [moved = std::move(work), shared = state](Database& database) mutable -> bool {
          shared->result.emplace(moved(database));
          return shared->result->has_value();
        };
        job.answer = [loop, shared = state](const Error* failed) mutable {
          if (failed != nullptr) shared->result.emplace(std::unexpected(*failed));
          loop->Post([kept = std::move(shared)] {
            if (kept->waiter) std::exchange(kept->waiter, nullptr).resume();
          });
        };
        if (worker.Enqueue(std::move(job))) return true;
        state->result.emplace(Fail(ErrorCode::kStoreBusy, "the store's queue is full; try again"));
        return false;
      }
      Result<T> await_resume() { return std::move(*state->result); }
    };
    co_return co_await Awaiter{*this, std::move(work), durable};
  }

 private:
  struct Job {
    bool durable = true;
    std::move_only_function<bool(Database&)> run;  // false: undo what it did
    // The error that befell the whole batch, or null.
    std::move_only_function<void(const Error*)> answer;
  };
  bool Enqueue(Job job);
  void Main();
  void RunBatch(std::vector<Job>& batch);
  Result<void> RunJobs(std::vector<Job>& batch);
  Result<void> SetFlushing(bool wanted);

  const Kind kind_;
  std::unique_ptr<Database> database_;
  const bool flushes_;
  bool flushing_;  // what the connection is set to
  std::function<void()> committed_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace caisson::store::sqlite
