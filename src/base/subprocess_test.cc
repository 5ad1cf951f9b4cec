#include "base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/syscall.h"

namespace caisson {
namespace {

SystemClock system_clock;

Deadline Soon() { return Deadline::After(system_clock, Millis(30'000)); }

SpawnSpec Shell(const std::string& text) {
  SpawnSpec spec;
  spec.program = "/bin/sh";
  spec.arguments = {"-c", text};
  return spec;
}

TEST(RunCommand, GivesOutputAndCode) {
  auto result = RunCommand(Shell("cat; echo err >&2; exit 3"), "input", 1000, system_clock, Soon());
  ASSERT_TRUE(result.has_value()) << result.error().ToString();
  EXPECT_EQ(result->out, "input");
  EXPECT_EQ(result->err, "err\n");
  EXPECT_EQ(result->status.code, 3);
}

TEST(RunCommand, HasAnEmptyEnvironment) {
  ::setenv("CAISSON_TEST_LEAK", "secret", 1);
  SpawnSpec spec;
  spec.program = "/usr/bin/env";
  auto result = RunCommand(spec, "", 1000, system_clock, Soon());
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->out, "");
}

TEST(RunCommand, LeaksNoDescriptors) {
  // On purpose without close-on-exec, as a careless library would open it.
  UniqueFd leak(::open("/dev/null", O_RDONLY));  // NOLINT
  auto result = RunCommand(Shell("ls /proc/self/fd | wc -l"), "", 1000, system_clock, Soon());
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->out, "4\n");  // 0, 1, 2 and the directory that ls reads
}

TEST(RunCommand, BoundsOutput) {
  auto result = RunCommand(Shell("yes"), "", 100'000, system_clock, Soon());
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kFileTooLarge);
}

TEST(RunCommand, EndsAtTheDeadline) {
  auto result = RunCommand(Shell("sleep 1000"), "", 1000, system_clock,
                           Deadline::After(system_clock, Millis(50)));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(Spawn, ReportsSignals) {
  auto child = Spawn(Shell("kill -TERM $$"));
  ASSERT_TRUE(child.has_value());
  auto status = child->Wait(system_clock, Soon());
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(status->signal, SIGTERM);
  EXPECT_FALSE(status->ok());
}

TEST(Spawn, NamesAMissingProgram) {
  SpawnSpec spec;
  spec.program = "/nonexistent/program";
  auto child = Spawn(spec);
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().message, "start /nonexistent/program: ENOENT");
}

TEST(Spawn, KillsWhatIsDropped) {
  pid_t pid = -1;
  {
    auto child = Spawn(Shell("sleep 1000"));
    ASSERT_TRUE(child.has_value());
    pid = child->pid();
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(Spawn, MapsDescriptorsThatCollide) {
  Pipe a = MakePipe().value();
  Pipe b = MakePipe().value();
  SpawnSpec spec = Shell("echo first >&5; echo second >&6");
  // Swapped numbers: each target may be the other's source.
  spec.descriptors = {{5, a.write.get()}, {6, b.write.get()}};
  auto child = Spawn(spec);
  ASSERT_TRUE(child.has_value());
  ASSERT_TRUE(child->Wait(system_clock, Soon()).has_value());
  a.write.reset();
  b.write.reset();
  EXPECT_EQ(ReadAll(a.read.get(), 100).value(), "first\n");
  EXPECT_EQ(ReadAll(b.read.get(), 100).value(), "second\n");
}

}  // namespace
}  // namespace caisson
