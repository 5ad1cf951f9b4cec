#include "base/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace caisson {
namespace {

// Suspends until somebody resumes it by hand.
struct Gate {
  std::coroutine_handle<> waiting;
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) { waiting = handle; }
  void await_resume() const {}
  void Open() { std::exchange(waiting, nullptr).resume(); }
};

Task<std::string> Through(Gate& gate, std::string text) {
  co_await gate;
  co_return text + "!";
}
Task<Result<int>> Sum(Gate& gate) {
  std::string text = co_await Through(gate, std::string(100, 'a'));
  if (text.size() != 101) co_return Fail(ErrorCode::kInternal, "lost");
  co_return 42;
}
Task<Result<int>> Failing() {
  CAISSON_CO_TRY((Result<void>(Fail(ErrorCode::kGone, "gone"))));
  co_return 1;
}

TEST(Task, ResumesItsAwaiter) {
  Gate gate;
  int got = 0;
  StartTask(Sum(gate), [&](Result<int> result) { got = result.value(); });
  EXPECT_EQ(got, 0);
  gate.Open();
  EXPECT_EQ(got, 42);
}

TEST(Task, CarriesErrors) {
  bool called = false;
  StartTask(Failing(), [&](Result<int> result) {
    called = true;
    EXPECT_EQ(result.error().code, ErrorCode::kGone);
  });
  EXPECT_TRUE(called);
}

TEST(Task, DestroysItsFrameWhenDropped) {
  auto alive = std::make_shared<int>(1);
  std::weak_ptr<int> watch = alive;
  Gate gate;
  {
    Task<std::string> task = [](Gate& g, std::shared_ptr<int> held) -> Task<std::string> {
      co_await g;
      co_return std::to_string(*held);
    }(gate, std::move(alive));
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

Task<int> Depth(int n) {
  if (n == 0) co_return 0;
  co_return 1 + co_await Depth(n - 1);
}

TEST(Task, DeepChainsDoNotGrowTheStackOnResume) {
  int got = 0;
  StartTask(Depth(1000), [&](int depth) { got = depth; });
  EXPECT_EQ(got, 1000);
}

}  // namespace
}  // namespace caisson
