// How long the steps of a creation take, printed for the benchmark notes; nothing is asserted about
// milliseconds, which depend on the machine.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

uint32_t Quantile(std::vector<uint32_t> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

void Report(const char* title, const std::vector<Reply>& replies) {
  printf("%s, %zu creations, microseconds p50 / p90\n", title, replies.size());
  std::vector<uint32_t> totals;
  for (size_t step = 0; step < kLaunchStepNames.size(); step++) {
    std::vector<uint32_t> took;
    for (const Reply& reply : replies) {
      // The end of the step before; steps of launcher and child overlap around the clone.
      uint32_t before = 0;
      for (size_t i = 0; i < step; i++) before = std::max(before, reply.step_us[i]);
      if (reply.step_us[step] == 0) continue;
      took.push_back(reply.step_us[step] > before ? reply.step_us[step] - before : 0);
    }
    if (took.empty()) continue;
    printf("  %-16s %6u %6u\n", std::string(kLaunchStepNames[step]).c_str(), Quantile(took, 0.5),
           Quantile(took, 0.9));
  }
  for (const Reply& reply : replies)
    totals.push_back(reply.step_us[static_cast<size_t>(LaunchStep::kGuestReady)]);
  printf("  %-16s %6u %6u  p99 %u\n", "all", Quantile(totals, 0.5), Quantile(totals, 0.9),
         Quantile(totals, 0.99));
}

TEST_F(LauncherTest, TimingOfCreation) {
  guest_program_ = std::string(getenv("CAISSON_BIN_DIR")) + "/caisson-guest";
  Client client(state_dir_, "--keep");
  for (bool cgroups : {true, false}) {
    std::vector<Reply> replies;
    std::vector<uint32_t> ends;
    for (int i = 0; i < 210; i++) {
      Box box = Prepare(Spec());
      next_box_ = 0;  // one after the other: the same ids again
      if (!cgroups) box.plan.cgroups.clear();
      ASSERT_TRUE(Create(client, box, kRealGuestConfig).ok());
      if (i >= 10) replies.push_back(box.reply);
      timespec begin{}, end{};
      clock_gettime(CLOCK_MONOTONIC, &begin);
      ASSERT_TRUE(Terminate(client, box).ok());
      clock_gettime(CLOCK_MONOTONIC, &end);
      ends.push_back(static_cast<uint32_t>((end.tv_sec - begin.tv_sec) * 1'000'000 +
                                           (end.tv_nsec - begin.tv_nsec) / 1000));
    }
    Report(cgroups ? "default profile" : "without cgroups", replies);
    printf("  %-16s %6u %6u\n", "terminate", Quantile(ends, 0.5), Quantile(ends, 0.9));
  }
  ExpectCensusAsBefore();
}

}  // namespace
}  // namespace caisson::launcher::testing
