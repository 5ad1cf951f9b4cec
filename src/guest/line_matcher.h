// Runs a regular expression over lines, in time linear in the text and in bounded memory, whatever
// the pattern: all threads of its program at once, as states of an automaton over bytes, which are
// made when they are first needed and kept in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "guest/regex.h"

namespace caisson::guest {

// Looks for lines that match. Lines end at LF; one CR before it, or at the end of the last line,
// is no part of the line.
class LineMatcher {
 public:
  explicit LineMatcher(Regex regex);

  // At the start of a line.
  void Restart() { state_ = kFirstState; }

  enum class Found : uint8_t {
    kMatch,    // `at` is in a line that matches, or at its LF; the matcher is at a line's start
    kNothing,  // all of the text is read, and its last line so far does not match
    kPause,    // much had to be made: look at the clock, then call again
  };
  // Reads on from text[at].
  Found Feed(std::string_view text, size_t& at);
  // The text ends here, as if by an LF: whether its last line matches.
  bool FeedEnd();

  // One whole line, without its LF.
  bool Matches(std::string_view line);

 private:
  // A thread is an instruction and how much of a code point it has read: bits 0–13 the instruction,
  // 14–15 the bytes that are still to come, 16 whether any of them will do, 17–31 the value so far.
  using Thread = uint32_t;
  struct State {
    uint32_t begin;  // in threads_
    uint32_t size;
    uint32_t hash;
    uint8_t flags;
  };
  enum : uint8_t {
    kAtBegin = 1,
    kAfterWord = 2,
    kAfterCr = 4,
    kMatchedBeforeCr = 8,  // it is a match if the line ends here
  };
  // Numbers of states. kUnmade stands in a row where no state is known yet.
  enum : uint32_t { kUnmade = 0, kMatched = 1, kDead = 2, kFirstState = 3 };

  static constexpr size_t kMaxCacheBytes = 2 * 1024 * 1024;
  // Of instructions looked at, before Feed pauses: some milliseconds.
  static constexpr size_t kPauseWork = 500'000;

  uint32_t Make(uint32_t from, uint8_t byte);
  uint32_t Step(const State& state, uint8_t byte);
  uint32_t AtLineEnd(const State& state);
  bool Resolve(const State& state, bool at_end, bool at_word_edge);
  void Follow(size_t pc, uint8_t flags, std::vector<Thread>& out);
  void Advance(Thread thread, uint8_t byte);
  void AdvanceBegun(size_t pc, uint32_t value, uint32_t to_come);
  bool Contains(size_t pc, uint32_t code_point) const;
  uint32_t Intern(uint8_t flags);
  void Forget();

  // What assertions are known to hold while threads are followed.
  enum : uint8_t { kBeginHolds = 1, kResolving = 2, kEndHolds = 4, kWordEdgeHolds = 8 };

  Regex regex_;
  uint32_t state_ = kFirstState;
  size_t work_ = 0;

  std::vector<State> states_;
  std::vector<Thread> threads_;
  std::vector<uint32_t> rows_;   // 256 a state: the next one's number
  std::vector<uint32_t> table_;  // of the states, by hash; open addressing

  // Of one step.
  std::vector<Thread> resolved_;
  std::vector<Thread> next_;
  uint8_t next_flags_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<uint32_t> seen_;  // by instruction: the last `round_` that met it
  uint32_t round_ = 0;
};

}  // namespace caisson::guest
