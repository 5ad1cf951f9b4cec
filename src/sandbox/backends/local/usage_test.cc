#include "sandbox/backends/local/usage.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace caisson::sandbox::local {
namespace {

namespace fs = std::filesystem;

// Directories of invented cgroups.
class UsageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char base[] = "/tmp/caisson-usage-XXXXXX";
    ASSERT_NE(::mkdtemp(base), nullptr);
    base_ = base;
  }
  void TearDown() override { fs::remove_all(base_); }
  std::string Add(const std::string& path,
                  const std::vector<std::pair<std::string, std::string>>& files) {
    std::string directory = base_ + "/" + path;
    fs::create_directories(directory);
    for (const auto& [name, text] : files) std::ofstream(directory + "/" + name) << text;
    return directory;
  }
  std::string base_;
};

TEST_F(UsageTest, UnifiedWithControllers) {
  std::vector<std::string> cgroups{
      Add("box", {{"memory.current", "999\n"}, {"pids.current", "9\n"}}),
      Add("box/cmd", {{"cpu.stat", "usage_usec 1500\nuser_usec 1000\n"},
                      {"memory.current", "4096\n"},
                      {"memory.peak", "8192\n"},
                      {"pids.current", "3\n"}}),
      Add("box/guest", {{"cpu.stat", "usage_usec 7\n"}, {"memory.current", "7\n"}})};
  Usage usage = MeasureUsage(cgroups, "");
  EXPECT_EQ(usage.cpu, Micros(1500));
  EXPECT_EQ(usage.memory_bytes, 4096u);
  EXPECT_EQ(usage.memory_peak_bytes, 8192u);
  EXPECT_EQ(usage.pids, 2u);  // without the spawner
  EXPECT_EQ(usage.disk_bytes, std::nullopt);
}

TEST_F(UsageTest, OldHierarchiesBesideTheUnifiedTree) {
  std::vector<std::string> cgroups{Add("unified/box", {{"cpu.stat", "usage_usec 2000\n"}}),
                                   Add("memory/box", {{"memory.usage_in_bytes", "999\n"}}),
                                   Add("memory/box/cmd", {{"memory.usage_in_bytes", "10\n"},
                                                          {"memory.max_usage_in_bytes", "20\n"}}),
                                   Add("cpu/box", {{"cpu.stat", "nr_periods 5\n"}}),
                                   Add("pids/box", {{"pids.current", "5\n"}}),
                                   Add("pids/box/cmd", {{"pids.current", "1\n"}})};
  Usage usage = MeasureUsage(cgroups, base_);
  EXPECT_EQ(usage.cpu, Micros(2000));
  EXPECT_EQ(usage.memory_bytes, 10u);
  EXPECT_EQ(usage.memory_peak_bytes, 20u);
  EXPECT_EQ(usage.pids, 0u);
  fs::create_directories(base_ + "/tmp");
  EXPECT_NE(MeasureUsage(cgroups, base_).disk_bytes, std::nullopt);
}

TEST_F(UsageTest, WithoutTheUnifiedTreeAndWithoutAny) {
  std::vector<std::string> cgroups{
      Add("cpu,cpuacct/box", {{"cpu.stat", "nr_periods 5\n"}, {"cpuacct.usage", "3000000\n"}})};
  EXPECT_EQ(MeasureUsage(cgroups, "").cpu, Micros(3000));
  Usage none = MeasureUsage({}, base_ + "/nowhere");
  EXPECT_EQ(none.cpu, std::nullopt);
  EXPECT_EQ(none.memory_bytes, std::nullopt);
  EXPECT_EQ(none.pids, std::nullopt);
  EXPECT_EQ(none.disk_bytes, std::nullopt);
}

}  // namespace
}  // namespace caisson::sandbox::local
