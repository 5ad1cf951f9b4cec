// Regular expressions on lines: a part of RE2's syntax (docs/guest-protocol.md section 7 lists it),
// compiled to a program of a few instructions, which line_matcher.h runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::guest {

// A byte of a word, as \b and \w have it.
constexpr bool IsWordByte(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= 'a' && byte <= 'z') || byte == '_';
}

// A compiled pattern. It is UTF-8 aware: a class or `.` takes one whole code point; bytes that are
// no UTF-8 are taken by nothing, but a match may lie beside them.
class Regex {
 public:
  static constexpr size_t kMaxPatternBytes = 16 * 1024;
  static constexpr int32_t kMaxRepeat = 1'000;
  static constexpr size_t kMaxInstructions = 10'000;
  static constexpr int kMaxDepth = 250;  // of groups

  // kInvalidPattern names the construct and its offset. `ignore_case` is about ASCII letters.
  static Result<Regex> Compile(std::string_view pattern, bool ignore_case);

 private:
  friend class RegexParser;
  friend class LineMatcher;

  enum class Op : uint8_t {
    kSet,    // one code point of ranges_[x .. x+y)
    kSplit,  // goes on at +x and at +y
    kJump,   // goes on at +x
    kBegin,  // assertions
    kEnd,
    kWordEdge,
    kNoWordEdge,
    kMatch,
  };
  // Jumps are relative, so that a piece of program can be copied and moved.
  struct Instruction {
    Op op;
    int32_t x = 0;
    int32_t y = 0;
  };
  struct Range {
    uint32_t low;
    uint32_t high;
  };

  std::vector<Instruction> program_;
  std::vector<Range> ranges_;  // of each set: sorted, apart, without surrogates
  bool has_word_edges_ = false;
};

}  // namespace caisson::guest
