// What the launcher's behaviour tests share: a state directory, plans as the server makes them, a
// sandbox with the probe guest in it, and a census of the host that must be the same afterwards.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "client.h"
#include "launcher/plan.h"
#include "sandbox/backends/local/plan_builder.h"
#include "sandbox/spec.h"

namespace caisson::launcher::testing {

// Start-up configuration of the real guest; the probe guest takes words.
inline constexpr const char* kRealGuestConfig =
    R"({"user": {"uid": 1000, "gid": 1000, "name": "user", "home": "/home/user", "shell": "/bin/sh"},
        "work_dir": "/workspace", "env": {}})";

// What a command in the sandbox gave back.
struct Output {
  int code = -1;
  std::string text;
};

// Everything the server holds for one sandbox.
struct Box {
  std::string id;
  LaunchPlan plan;
  std::string socket_path;
  UniqueFd listen;
  int pid = 0;
  uint64_t start_time = 0;
  UniqueFd pidfd;
  Reply reply;

  // Runs `command` in it, by way of the probe guest.
  Output Sh(const std::string& command) const { return Ask("sh " + command); }
  Output Guest(const std::string& command) const { return Ask("guest " + command); }
  Output Ask(const std::string& request) const;
  std::string CgroupPaths() const;
};

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override;  // skips without root
  void SetUpAnyUser();
  void TearDown() override;

  sandbox::SandboxSpec Spec() const { return sandbox::BuiltInProfile("default").value(); }
  // A box with its plan and listening socket, not created yet.
  Box Prepare(const sandbox::SandboxSpec& spec, const std::string& workspace = {});
  uint32_t SendCreate(Client& client, Box& box, const std::string& config = "");
  Answer Create(Client& client, Box& box, const std::string& config = "");
  // Prepare and Create, expecting success.
  Box Start(Client& client, const sandbox::SandboxSpec& spec, const std::string& config = "");
  Box Start(Client& client) { return Start(client, Spec()); }
  Answer Terminate(Client& client, const Box& box, uint32_t deadline_ms = 0);

  // Mounts, cgroups, processes and files that belong to this test's sandboxes.
  std::set<std::string> Census() const;
  // Waits a moment for the kernel (and the reaper of orphans) to finish.
  void ExpectCensusAsBefore();

  std::string state_dir_;
  sandbox::local::HostFacts facts_;
  std::string guest_program_;  // empty: the probe guest
  std::string outer_filter_;
  std::string inner_filter_;
  std::set<std::string> before_;
  uint32_t next_box_ = 0;
};

}  // namespace caisson::launcher::testing
