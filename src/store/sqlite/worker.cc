#include "store/sqlite/worker.h"

#include <algorithm>
#include <iterator>

#include "base/failpoint.h"

namespace caisson::store::sqlite {
namespace {

constexpr size_t kMaxQueue = 4096;
constexpr size_t kMaxBatch = 256;

}  // namespace

Worker::Worker(Kind kind, std::unique_ptr<Database> database, bool flushes,
               std::function<void()> committed)
    : kind_(kind),
      database_(std::move(database)),
      flushes_(flushes),
      flushing_(flushes),
      committed_(std::move(committed)),
      thread_([this] { Main(); }) {}

Worker::~Worker() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool Worker::Enqueue(Job job) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= kMaxQueue) return false;
    queue_.push_back(std::move(job));
  }
  wake_.notify_one();
  return true;
}

void Worker::Main() {
  std::vector<Job> batch;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      auto count = static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatch));
      std::move(queue_.begin(), queue_.begin() + count, std::back_inserter(batch));
      queue_.erase(queue_.begin(), queue_.begin() + count);
    }
    RunBatch(batch);
    batch.clear();
  }
}

void Worker::RunBatch(std::vector<Job>& batch) {
  auto result = RunJobs(batch);
  if (result && kind_ == Kind::kWriter) committed_();
  for (Job& job : batch) job.answer(result ? nullptr : &result.error());
}

Result<void> Worker::SetFlushing(bool wanted) {
  if (!flushes_ || wanted == flushing_) return {};
  CAISSON_TRY(
      database_->Execute(wanted ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL"));
  flushing_ = wanted;
  return {};
}

Result<void> Worker::RunJobs(std::vector<Job>& batch) {
  if (kind_ == Kind::kReader) {
    for (Job& job : batch) job.run(*database_);
    return {};
  }
  CAISSON_TRY(SetFlushing(std::ranges::any_of(batch, &Job::durable)));
  CAISSON_TRY(database_->Prepare("BEGIN IMMEDIATE").Run());
  auto run = [&]() -> Result<void> {
    for (Job& job : batch) {
      CAISSON_TRY(database_->Prepare("SAVEPOINT job").Run());
      if (!job.run(*database_)) CAISSON_TRY(database_->Prepare("ROLLBACK TO job").Run());
      CAISSON_TRY(database_->Prepare("RELEASE job").Run());
    }
    CAISSON_FAILPOINT("store.before_commit");
    CAISSON_TRY(database_->Prepare("COMMIT").Run());
    CAISSON_FAILPOINT("store.after_commit");
    return {};
  };
  auto result = run();
  // A failed COMMIT may have rolled back by itself; then there is nothing to undo.
  if (!result) (void)database_->Execute("ROLLBACK");
  return result;
}

}  // namespace caisson::store::sqlite
