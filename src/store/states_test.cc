#include "store/states.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace caisson::store {
namespace {

template <typename Status>
void CheckTable() {
  auto statuses = Statuses<Status>();
  std::set<std::string_view> names;
  for (size_t i = 0; i < statuses.size(); i++) {
    EXPECT_EQ(static_cast<size_t>(statuses[i].status), i) << statuses[i].name;
    EXPECT_TRUE(names.insert(statuses[i].name).second);
    EXPECT_EQ(StatusFromName<Status>(statuses[i].name), statuses[i].status);
  }
  std::set<std::pair<Status, Status>> seen;
  for (const auto& row : Transitions<Status>()) {
    EXPECT_FALSE(IsTerminal(row.from)) << NameOf(row.from) << " is an end";
    EXPECT_NE(row.from, row.to);
    EXPECT_TRUE(seen.insert({row.from, row.to}).second);
  }
  // From every state that is not an end, an end can be reached.
  std::set<Status> ends_reachable;
  for (const auto& row : statuses) {
    if (row.terminal) ends_reachable.insert(row.status);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& row : Transitions<Status>()) {
      if (ends_reachable.contains(row.to) && ends_reachable.insert(row.from).second) changed = true;
    }
  }
  EXPECT_EQ(ends_reachable.size(), statuses.size());
}

TEST(States, TablesAreConsistent) {
  CheckTable<RunStatus>();
  CheckTable<TaskStatus>();
  CheckTable<SessionStatus>();
  CheckTable<SandboxStatus>();
}

// Each legal change of a run must be a legal change (or none) of its task and its session.
TEST(States, RunEffectsAreLegal) {
  auto effects = RunEffects();
  for (const auto& row : Transitions<RunStatus>()) {
    const RunEffect& before = effects[static_cast<size_t>(row.from)];
    const RunEffect& after = effects[static_cast<size_t>(row.to)];
    EXPECT_EQ(before.run, row.from);
    EXPECT_TRUE(before.task == after.task || IsLegal(before.task, after.task))
        << NameOf(row.from) << " to " << NameOf(row.to) << ": task";
    EXPECT_TRUE(before.session == after.session || IsLegal(before.session, after.session))
        << NameOf(row.from) << " to " << NameOf(row.to) << ": session";
    EXPECT_EQ(IsTerminal(after.run), IsTerminal(after.task));
  }
}

TEST(States, NoEndOfARunEndsItsSession) {
  for (const RunEffect& effect : RunEffects()) {
    if (IsTerminal(effect.run)) {
      EXPECT_EQ(effect.session, SessionStatus::kIdle);
    }
  }
}

}  // namespace
}  // namespace caisson::store
