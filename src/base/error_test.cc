#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace caisson {
namespace {

TEST(ErrorTable, IsConsistent) {
  size_t size = 0;
  const ErrorCodeInfo* table = ErrorCodeTable(size);
  std::set<std::string_view> wires;
  for (size_t i = 0; i < size; i++) {
    EXPECT_EQ(static_cast<size_t>(table[i].code), i) << table[i].wire;
    EXPECT_TRUE(wires.insert(table[i].wire).second) << table[i].wire << " is there twice";
    EXPECT_EQ(table[i].wire.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"),
              std::string_view::npos);
    EXPECT_GE(table[i].http_status, 400);
    EXPECT_LT(table[i].http_status, 600);
    EXPECT_TRUE(table[i].title.ends_with(".")) << table[i].wire;
    EXPECT_EQ(ErrorCodeFromWire(table[i].wire), table[i].code);
  }
  EXPECT_EQ(ErrorCodeFromWire("no_such_code"), std::nullopt);
}

TEST(Error, SaysMessageAndCause) {
  Error error{ErrorCode::kNotFound, "no session ses1", "row missing", std::nullopt};
  EXPECT_EQ(error.ToString(), "not_found: no session ses1 (row missing)");
  EXPECT_FALSE(error.retryable());
  error.retryable_override = true;
  EXPECT_TRUE(error.retryable());
}

TEST(Error, MapsErrno) {
  EXPECT_EQ(ErrnoError(ENOENT, "open /x").message, "open /x: ENOENT");
  EXPECT_EQ(ErrnoError(ENOENT, "open /x").code, ErrorCode::kFileNotFound);
  EXPECT_EQ(ErrnoError(ENOSPC, "write").code, ErrorCode::kDiskFull);
  EXPECT_EQ(ErrnoError(9999, "x").message, "x: errno 9999");
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "odd");
  return value / 2;
}
Result<int> Quarter(int value) {
  CAISSON_ASSIGN(int half, Half(value));
  CAISSON_TRY(Half(half));
  return half / 2;
}

TEST(Result, MacrosPassErrorsOn) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(7).error().message, "odd");
  EXPECT_EQ(Quarter(6).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace caisson
