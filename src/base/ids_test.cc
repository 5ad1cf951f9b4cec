#include "base/ids.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace caisson {
namespace {

TEST(Ids, HaveTheDocumentedShape) {
  SystemClock clock;
  SystemRandom random;
  SessionId id = SessionId::Make(clock, random);
  EXPECT_EQ(id.text().size(), kIdLength);
  EXPECT_TRUE(id.text().starts_with("ses"));
  EXPECT_EQ(SessionId::Parse(id.text()).value(), id);
}

TEST(Ids, SortByTime) {
  SeededRandom random(1);
  std::string before;
  for (int64_t ms = 0; ms < 2000; ms += 7) {
    std::string id = MakeIdText("run", WallTime(Millis(1'796'048'463'000 + ms)), random);
    EXPECT_LT(before, id);
    before = id;
  }
}

TEST(Ids, AreDistinct) {
  SystemRandom random;
  std::unordered_set<std::string> seen;
  for (int i = 0; i < 10'000; i++) {
    EXPECT_TRUE(seen.insert(MakeIdText("run", WallTime(Millis(1)), random)).second);
  }
}

TEST(Ids, RefuseForeignText) {
  std::string good = "ses" + std::string(26, '0');
  EXPECT_TRUE(SessionId::Parse(good).has_value());
  EXPECT_FALSE(RunId::Parse(good).has_value());
  for (const std::string& bad :
       {std::string(), good + "0", good.substr(1), std::string("ses") + std::string(26, 'u'),
        std::string("ses") + std::string(26, 'A'), "ses/../" + std::string(22, '0'),
        good.substr(0, 28) + std::string(1, '\0')}) {
    EXPECT_FALSE(SessionId::Parse(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace caisson
