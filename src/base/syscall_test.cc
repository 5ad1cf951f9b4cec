#include "base/syscall.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace caisson {
namespace {

TEST(ReadFromStart, LeavesThePositionToOthers) {
  for (size_t size : {0, 1, 2047, 2048, 2049, 70'000, 200'000}) {
    std::string content(size, 'x');
    UniqueFd fd = MakeSealedMemFd("test", content).value();
    ASSERT_EQ(::lseek(fd.get(), static_cast<off_t>(size / 2), SEEK_SET),
              static_cast<off_t>(size / 2));
    EXPECT_EQ(ReadFromStart(fd.get(), size).value(), content) << size;
    EXPECT_EQ(ReadAll(fd.get(), size).value().size(), size - size / 2) << size;
    if (size > 0) {
      EXPECT_EQ(ReadFromStart(fd.get(), size - 1).error().code, ErrorCode::kFileTooLarge) << size;
    }
  }
}

TEST(ReadAll, AcceptsExactlyTheLimit) {
  UniqueFd fd = MakeSealedMemFd("test", std::string(1000, 'x')).value();
  EXPECT_EQ(ReadAll(fd.get(), 1000).value().size(), 1000u);
  ::lseek(fd.get(), 0, SEEK_SET);
  EXPECT_EQ(ReadAll(fd.get(), 999).error().code, ErrorCode::kFileTooLarge);
}

TEST(MakeSealedMemFd, CannotBeChanged) {
  UniqueFd fd = MakeSealedMemFd("test", "content").value();
  EXPECT_EQ(::write(fd.get(), "x", 1), -1);
  EXPECT_EQ(::ftruncate(fd.get(), 0), -1);
}

TEST(OpenFile, NamesThePath) {
  auto fd = OpenFile("/nonexistent/file", O_RDONLY);
  ASSERT_FALSE(fd.has_value());
  EXPECT_EQ(fd.error().code, ErrorCode::kFileNotFound);
  EXPECT_EQ(fd.error().message, "open /nonexistent/file: ENOENT");
}

TEST(UniqueFd, ClosesOnce) {
  Pipe pipe = MakePipe().value();
  int number = pipe.read.get();
  UniqueFd moved = std::move(pipe.read);
  EXPECT_EQ(moved.get(), number);
  moved.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace caisson
