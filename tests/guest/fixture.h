// A guest in a work directory that a test may fill as root before it starts; afterwards it is well,
// and none of its temporary files is left.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "guest_process.h"

namespace caisson::guest {

class GuestTest : public testing::Test {
 protected:
  // Runs as root in the guest's mount namespace.
  virtual void Prepare(const std::string& work_dir) { (void)work_dir; }
  virtual boost::json::object Transfer() { return {}; }

  void SetUp() override {
    GuestProcess::Options options;
    options.prepare = [this](const std::string& work_dir) { Prepare(work_dir); };
    options.transfer = Transfer();
    std::string reason;
    guest_ = GuestProcess::Start(options, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (!guest_) return;
    EXPECT_EQ(guest_->Health(), "ok");
    EXPECT_EQ(Sh("find . -name '.caisson-*' 2>/dev/null"), "");
  }

  std::string Sh(const std::string& command) { return guest_->Shell(command).out; }

  std::unique_ptr<GuestProcess> guest_;
};

}  // namespace caisson::guest
