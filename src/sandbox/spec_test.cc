#include "sandbox/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "sandbox/spec_json.h"

namespace caisson::sandbox {
namespace {

using std::chrono::milliseconds;

TEST(SpecTest, IsolationNamesGoBothWaysInTheOrderOfTheLadder) {
  const char* names[] = {"none",        "runtime", "os_process", "container", "hardened_container",
                         "user_kernel", "microvm", "vm"};
  Isolation last = Isolation::kNone;
  for (const char* name : names) {
    Result<Isolation> parsed = ParseIsolation(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(NameOf(*parsed), name);
    EXPECT_GE(*parsed, last);
    last = *parsed;
  }
}

TEST(SpecTest, UnknownNamesAreRefusedWithTheList) {
  for (const char* name : {"process", "", "VM", "docker", "vm "}) {
    Result<Isolation> parsed = ParseIsolation(name);
    ASSERT_FALSE(parsed.has_value()) << name;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(parsed.error().message, testing::HasSubstr("hardened_container"));
  }
  EXPECT_FALSE(ParseNetworkMode("open").has_value());
  EXPECT_FALSE(ParseWorkspaceMode("").has_value());
}

TEST(SpecTest, ModesGoBothWays) {
  for (const char* name : {"closed", "allow_list", "named", "unrestricted"}) {
    EXPECT_EQ(NameOf(ParseNetworkMode(name).value()), name);
  }
  for (const char* name : {"session", "ephemeral"}) {
    EXPECT_EQ(NameOf(ParseWorkspaceMode(name).value()), name);
  }
}

TEST(SpecTest, BuiltInProfiles) {
  SandboxSpec standard = BuiltInProfile("default").value();
  EXPECT_EQ(standard.requirements.min_isolation, Isolation::kHardenedContainer);
  EXPECT_TRUE(standard.requirements.resource_limits && standard.requirements.uid_separation &&
              standard.requirements.seccomp && standard.requirements.landlock &&
              standard.requirements.disk_limit);
  SandboxSpec rootless = BuiltInProfile("default-rootless").value();
  EXPECT_FALSE(rootless.requirements.resource_limits);
  EXPECT_FALSE(rootless.requirements.uid_separation);
  EXPECT_TRUE(rootless.requirements.seccomp && rootless.requirements.landlock);
  for (const SandboxSpec& spec : {standard, rootless}) {
    EXPECT_EQ(spec.network, NetworkMode::kClosed);
    EXPECT_TRUE(ValidateSpec(spec).has_value());
  }
  EXPECT_EQ(BuiltInProfile("other").error().code, ErrorCode::kNotFound);
}

TEST(SpecTest, DefaultSpecIsValid) { EXPECT_TRUE(ValidateSpec(SandboxSpec{}).has_value()); }

TEST(SpecTest, BadFieldsAreNamed) {
  struct Case {
    const char* field;
    std::function<void(SandboxSpec&)> spoil;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case cases[] = {
      {"backend", [](SandboxSpec& s) { s.backend.clear(); }},
      {"rootfs", [](SandboxSpec& s) { s.rootfs = "images/a"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "workspace"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = ""; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/a/../b"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/a//b"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/a/"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = std::string("/a\0b", 4); }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/" + std::string(256, 'a'); }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/usr/work"; }},
      {"work_dir", [](SandboxSpec& s) { s.work_dir = "/proc"; }},
      {"home_dir", [](SandboxSpec& s) { s.home_dir = "/etc/home"; }},
      {"home_dir", [](SandboxSpec& s) { s.home_dir = s.work_dir; }},
      {"home_dir", [](SandboxSpec& s) { s.home_dir = s.work_dir + "/home"; }},
      {"the built-in /tmp", [](SandboxSpec& s) { s.work_dir = "/tmp/w"; }},
      {"the built-in /var/tmp", [](SandboxSpec& s) { s.writable_paths = {"/var/tmp"}; }},
      {"the built-in /var/tmp", [](SandboxSpec& s) { s.writable_paths = {"/var"}; }},
      {"writable_paths[1]", [](SandboxSpec& s) { s.writable_paths = {"/a", "/a/b"}; }},
      {"writable_paths[0]", [](SandboxSpec& s) { s.writable_paths = {"/dev/x"}; }},
      {"writable_paths", [](SandboxSpec& s) { s.writable_paths.assign(33, "/a"); }},
      {"resources.cpus", [](SandboxSpec& s) { s.resources.cpus = 0; }},
      {"resources.cpus", [=](SandboxSpec& s) { s.resources.cpus = nan; }},
      {"resources.cpus", [](SandboxSpec& s) { s.resources.cpus = -1; }},
      {"resources.memory_bytes", [](SandboxSpec& s) { s.resources.memory_bytes = 0; }},
      {"resources.memory_bytes", [](SandboxSpec& s) { s.resources.memory_bytes = ~0ull; }},
      {"resources.pids", [](SandboxSpec& s) { s.resources.pids = 0; }},
      {"resources.disk_bytes", [](SandboxSpec& s) { s.resources.disk_bytes = 0; }},
      {"resources.open_files", [](SandboxSpec& s) { s.resources.open_files = 3; }},
      {"lifetimes.ttl", [](SandboxSpec& s) { s.lifetimes.ttl = milliseconds(0); }},
      {"lifetimes.idle", [](SandboxSpec& s) { s.lifetimes.idle = milliseconds(-1); }},
      {"lifetimes.max_exec", [](SandboxSpec& s) { s.lifetimes.max_exec = std::chrono::days(999); }},
      {"read_only_sets[0]", [](SandboxSpec& s) { s.read_only_sets = {"skills"}; }},
      {"read_only_sets[0]", [](SandboxSpec& s) { s.read_only_sets = {"/workspace/skills"}; }},
      {"read_only_sets[1]", [](SandboxSpec& s) { s.read_only_sets = {"/a", "/a"}; }},
      {"read_only_sets", [](SandboxSpec& s) { s.read_only_sets.assign(17, "/a"); }},
      {"transfer.in.max_files", [](SandboxSpec& s) { s.transfer.in.max_files = 0; }},
      {"transfer.in.max_file_bytes", [](SandboxSpec& s) { s.transfer.in.max_file_bytes = 0; }},
      {"transfer.out.max_total_bytes", [](SandboxSpec& s) { s.transfer.out.max_total_bytes = -1; }},
      {"env", [](SandboxSpec& s) { s.env["A=B"] = "c"; }},
      {"env.A", [](SandboxSpec& s) { s.env["A"] = std::string("a\0", 2); }},
      {"CAISSON_GUEST_", [](SandboxSpec& s) { s.env["CAISSON_GUEST_TOKEN_FD"] = "4"; }},
      {"env", [](SandboxSpec& s) { s.env["A"] = std::string(70000, 'x'); }},
  };
  for (const Case& c : cases) {
    SandboxSpec spec;
    c.spoil(spec);
    Result<void> valid = ValidateSpec(spec);
    ASSERT_FALSE(valid.has_value()) << c.field;
    EXPECT_EQ(valid.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(valid.error().message, testing::HasSubstr(c.field));
  }
}

TEST(SpecTest, PathsThatOnlyLookAlikeDoNotOverlap) {
  SandboxSpec spec;
  spec.work_dir = "/work";
  spec.home_dir = "/workspace";
  spec.writable_paths = {"/works", "/etcetera"};
  EXPECT_TRUE(ValidateSpec(spec).has_value());
}

TEST(SpecJsonTest, WhatIsWrittenIsReadAgain) {
  constexpr std::string_view kWanted =
      R"({"backend":"local","idle_ms":2000,"max_exec_ms":3000,"min_isolation":"vm","network":"named",
"profile":"default-rootless","read_only_sets":["/s"],"resources":{"cpus":0.5,"disk_bytes":2097152,
"memory_bytes":8388608,"open_files":100,"pids":7},"transfer":{"in":{"max_file_bytes":2,"max_files":1,
"max_total_bytes":3},"out":{"max_file_bytes":5,"max_files":4,"max_total_bytes":6}},"ttl_ms":1000,
"work_dir":"/w","writable_paths":["/a","/b"]})";
  SandboxSpec spec = SpecFromLedger(kWanted).value();
  EXPECT_TRUE(ValidateSpec(spec).has_value());
  EXPECT_EQ(json::object(SpecToJson(spec)), json::ParseObject(kWanted).value());
  // Every field of the object is another one than the default's: none is forgotten.
  json::object standard = SpecToJson(BuiltInProfile("default").value());
  for (const auto& field : SpecToJson(spec)) {
    if (field.key() != "backend") EXPECT_NE(field.value(), standard.at(field.key())) << field.key();
  }
  // An earlier version's row has less, a later one's more.
  SandboxSpec old = SpecFromLedger(R"({"profile":"default","ttl_ms":5000,"new":{}})").value();
  EXPECT_EQ(old.lifetimes.ttl, milliseconds(5000));
  EXPECT_EQ(SpecToJson(old).at("transfer"), standard.at("transfer"));
}

TEST(SpecJsonTest, IsolationIsOnlyRaised) {
  auto floor = [](std::string_view text) {
    return SpecFromLedger(text).value().requirements.min_isolation;
  };
  EXPECT_EQ(floor(R"({"min_isolation":"microvm"})"), Isolation::kMicroVm);
  EXPECT_EQ(floor(R"({"min_isolation":"none"})"), Isolation::kHardenedContainer);
  EXPECT_EQ(SpecFromLedger(R"({"min_isolation":"process"})").error().code,
            ErrorCode::kInvalidArgument);
}

TEST(SpecJsonTest, WhatIsWrongIsNamed) {
  for (std::string_view text :
       {R"({"ttl_ms":999})", R"({"idle_ms":"1"})", R"({"resources":{"cpus":"1"}})",
        R"({"resources":{"cores":1}})", R"({"transfer":{"in":{"files":1}}})",
        R"({"transfer":{"up":{}}})", R"({"writable_paths":[1]})", R"({"env":{"A":1}})"}) {
    auto spec = SpecFromLedger(text);
    ASSERT_FALSE(spec.has_value()) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    std::string field(text.substr(2, text.find('"', 2) - 2));
    EXPECT_THAT(spec.error().message, testing::HasSubstr(field)) << text;
  }
}

}  // namespace
}  // namespace caisson::sandbox
