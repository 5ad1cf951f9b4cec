// A guest whose commands are held by a cgroup each, or by a supervisor each.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "guest/protocol.h"
#include "guest_process.h"

namespace caisson::guest {

class GuestExec : public testing::TestWithParam<Tracking> {
 protected:
  void SetUp() override { StartGuest({}); }
  void StartGuest(GuestProcess::Options options) {
    guest_.reset();
    options.tracking = GetParam();
    std::string reason;
    guest_ = GuestProcess::Start(options, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (guest_ && !unclean_expected_) EXPECT_EQ(guest_->Health(), "ok");
  }

  // How many processes in the sandbox run `name`.
  int Count(const std::string& name) {
    ExecResult result =
        guest_->Shell("n=0; for d in /proc/[0-9]*; do [ \"$(cat $d/comm 2>/dev/null)\" = " + name +
                      " ] && n=$((n+1)); done; echo $n");
    return std::atoi(result.out.c_str());
  }
  HttpResponse Signal(const std::string& id, const std::string& name, const std::string& scope) {
    return guest_->Call(
        "POST", "/v1/execs/" + id + "/signal",
        boost::json::serialize(boost::json::object{{"signal", name}, {"scope", scope}}));
  }
  boost::json::value State(const std::string& id) {
    return guest_->Call("GET", "/v1/execs/" + id).Json();
  }
  // Where the output of a command has stopped by itself: two looks, a tenth of a second apart,
  // agree. For upper bounds only: on a busy host it may look before the command goes on, and then
  // sees less than there will be, never more.
  int64_t OffsetWhenStill(const std::string& id) {
    int64_t offset = -1;
    EXPECT_TRUE(WaitFor([&] {
      int64_t now = State(id).at("offset").as_int64();
      bool still = now == offset;
      offset = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return still;
    }));
    return offset;
  }

  std::unique_ptr<GuestProcess> guest_;
  bool unclean_expected_ = false;
};

inline auto BothWays() { return testing::Values(Tracking::kCgroup, Tracking::kSupervisor); }
inline std::string NameOfWay(const testing::TestParamInfo<Tracking>& info) {
  return info.param == Tracking::kCgroup ? "Cgroup2" : "Supervisor";
}

}  // namespace caisson::guest
