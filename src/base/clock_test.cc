#include "base/clock.h"

#include <gtest/gtest.h>

namespace caisson {
namespace {

TEST(Time, FormatsWithMicroseconds) {
  EXPECT_EQ(FormatTime(WallTime(Micros(0))), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(FormatTime(WallTime(Micros(1'796'048'463'123'456))), "2026-11-30T14:21:03.123456Z");
  EXPECT_EQ(FormatTime(WallTime(Micros(-1))), "1969-12-31T23:59:59.999999Z");
}

TEST(Time, RoundTrips) {
  for (int64_t micros :
       {int64_t{0}, int64_t{1}, int64_t{951'782'400'000'000}, int64_t{4'102'444'799'999'999}}) {
    WallTime time{Micros(micros)};
    auto back = ParseTime(FormatTime(time));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(*back, time);
  }
}

TEST(Time, AcceptsShorterFractions) {
  EXPECT_EQ(ParseTime("2026-01-31T12:00:00Z").value(), ParseTime("2026-01-31T12:00:00.0Z").value());
  EXPECT_EQ(ParseTime("2026-01-31T12:00:00.5Z").value(),
            ParseTime("2026-01-31T12:00:00.500000Z").value());
}

TEST(Time, RefusesWhatIsNotOne) {
  for (const char* text :
       {"", "2026-01-31", "2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00Zx", "-026-01-01T00:00:00Z"}) {
    auto time = ParseTime(text);
    ASSERT_FALSE(time.has_value()) << text;
    EXPECT_EQ(time.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Deadline, CombinesAndPasses) {
  ManualClock clock{WallTime(Micros(0))};
  Deadline early = Deadline::After(clock, Millis(10));
  EXPECT_EQ(early.Earlier(Deadline::Never()).time(), early.time());
  EXPECT_FALSE(early.Passed(clock));
  clock.Advance(Millis(10));
  EXPECT_TRUE(early.Passed(clock));
  EXPECT_FALSE(Deadline::Never().Passed(clock));
}

}  // namespace
}  // namespace caisson
