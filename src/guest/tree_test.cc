#include "guest/tree.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

#include "guest/supervisor.h"

namespace caisson::guest {
namespace {

// A supervisor that ends while an order for it is still on its way must not be taken for one that
// died: its last reports are there to be read, behind the error that the unread order leaves.
TEST(SupervisedTree, ReadsTheLastReportsOfASupervisorThatLeftAnOrderUnread) {
  Loop loop;
  ASSERT_TRUE(loop.Init().has_value());
  UniqueFd peer;
  std::vector<SupervisorReport::Kind> kinds;
  bool lost_seen = false;
  auto tree = SupervisedTree::Make(loop, peer, [&](const SupervisorReport& report, bool lost) {
    lost_seen = lost_seen || lost;
    if (!lost) kinds.push_back(report.kind);
    if (lost || report.kind == SupervisorReport::Kind::kGone) loop.Stop();
  });
  ASSERT_TRUE(tree.has_value());
  for (auto kind : {SupervisorReport::Kind::kExited, SupervisorReport::Kind::kGone}) {
    SupervisorReport report;
    report.kind = kind;
    ASSERT_EQ(::send(peer.get(), &report, sizeof report, 0), static_cast<ssize_t>(sizeof report));
  }
  (*tree)->Kill();
  peer.reset();
  loop.Run();
  EXPECT_FALSE(lost_seen);
  EXPECT_EQ(kinds, (std::vector{SupervisorReport::Kind::kExited, SupervisorReport::Kind::kGone}));
}

// One that closes without its last report did die.
TEST(SupervisedTree, TellsADeadSupervisor) {
  Loop loop;
  ASSERT_TRUE(loop.Init().has_value());
  UniqueFd peer;
  bool lost_seen = false;
  auto tree = SupervisedTree::Make(loop, peer, [&](const SupervisorReport&, bool lost) {
    lost_seen = lost;
    loop.Stop();
  });
  ASSERT_TRUE(tree.has_value());
  (*tree)->Kill();
  peer.reset();
  loop.Run();
  EXPECT_TRUE(lost_seen);
}

}  // namespace
}  // namespace caisson::guest
