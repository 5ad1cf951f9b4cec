#include "guest/line_matcher.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace caisson::guest {
namespace {

constexpr size_t kSlots = 1 << 12;  // of the table; the cache is full long before

}  // namespace

LineMatcher::LineMatcher(Regex regex) : regex_(std::move(regex)) {
  static_assert(Regex::kMaxInstructions <= 1 << 14, "an instruction's number has 14 bits");
  seen_.resize(regex_.program_.size());
  Forget();
}

// Drops all states but the first.
void LineMatcher::Forget() {
  states_.clear();
  threads_.clear();
  rows_.clear();
  table_.assign(kSlots, kUnmade);
  states_.resize(kFirstState);  // those that are only numbers
  rows_.resize(kFirstState * size_t{256});
  next_.clear();
  round_++;
  Follow(0, kBeginHolds, next_);
  Intern(kAtBegin);
}

// The number of the state of next_ and `flags`.
uint32_t LineMatcher::Intern(uint8_t flags) {
  std::sort(next_.begin(), next_.end());
  next_.erase(std::unique(next_.begin(), next_.end()), next_.end());
  bool first = (flags & kAtBegin) != 0;
  if (next_.empty() && (flags & kMatchedBeforeCr) == 0 && !first) return kDead;
  uint32_t hash = flags;
  for (Thread thread : next_) hash = (hash ^ thread) * 0x9E3779B1U ^ (hash >> 15);
  size_t slot = hash % kSlots;
  for (; table_[slot] != kUnmade; slot = (slot + 1) % kSlots) {
    const State& known = states_[table_[slot]];
    if (known.hash == hash && known.flags == flags && known.size == next_.size() &&
        std::equal(next_.begin(), next_.end(), threads_.begin() + known.begin)) {
      return table_[slot];
    }
  }
  auto number = static_cast<uint32_t>(states_.size());
  states_.push_back(
      {static_cast<uint32_t>(threads_.size()), static_cast<uint32_t>(next_.size()), hash, flags});
  threads_.insert(threads_.end(), next_.begin(), next_.end());
  rows_.resize(rows_.size() + 256);
  table_[slot] = number;
  return number;
}

// Adds the threads that `pc` stands for: those that wait for a byte, and assertions that cannot be
// decided yet.
void LineMatcher::Follow(size_t pc, uint8_t flags, std::vector<Thread>& out) {
  stack_.push_back(static_cast<uint32_t>(pc));
  while (!stack_.empty()) {
    uint32_t at = stack_.back();
    stack_.pop_back();
    if (seen_[at] == round_) continue;
    seen_[at] = round_;
    work_++;
    const Regex::Instruction& instruction = regex_.program_[at];
    auto go = [&](int32_t by) { stack_.push_back(at + static_cast<uint32_t>(by)); };
    bool resolving = (flags & kResolving) != 0;
    bool edge = (flags & kWordEdgeHolds) != 0;
    switch (instruction.op) {
      case Regex::Op::kSplit:
        go(instruction.x);
        go(instruction.y);
        break;
      case Regex::Op::kJump:
        go(instruction.x);
        break;
      case Regex::Op::kBegin:
        if ((flags & kBeginHolds) != 0) go(1);
        break;
      case Regex::Op::kEnd:
        if (!resolving) out.push_back(at);
        if (resolving && (flags & kEndHolds) != 0) go(1);
        break;
      case Regex::Op::kWordEdge:
      case Regex::Op::kNoWordEdge:
        if (!resolving) out.push_back(at);
        if (resolving && edge == (instruction.op == Regex::Op::kWordEdge)) go(1);
        break;
      case Regex::Op::kSet:
      case Regex::Op::kMatch:
        out.push_back(at);
        break;
    }
  }
}

// Decides the assertions of a state, now that what follows is known. resolved_ has the threads that
// go on; true if one of them is at the match.
bool LineMatcher::Resolve(const State& state, bool at_end, bool at_word_edge) {
  auto flags = static_cast<uint8_t>(kResolving | ((state.flags & kAtBegin) != 0 ? kBeginHolds : 0) |
                                    (at_end ? kEndHolds : 0) | (at_word_edge ? kWordEdgeHolds : 0));
  resolved_.clear();
  round_++;
  for (uint32_t i = 0; i < state.size; i++) {
    Thread thread = threads_[state.begin + i];
    if (thread >> 14 != 0) {
      resolved_.push_back(thread);  // within a code point: no assertion is near
    } else {
      Follow(thread, flags, resolved_);
    }
  }
  for (Thread thread : resolved_) {
    if (thread >> 14 == 0 && regex_.program_[thread].op == Regex::Op::kMatch) return true;
  }
  return false;
}

bool LineMatcher::Contains(size_t pc, uint32_t code_point) const {
  const Regex::Instruction& set = regex_.program_[pc];
  const Regex::Range* begin = regex_.ranges_.data() + set.x;
  const Regex::Range* end = begin + set.y;
  const Regex::Range* range = std::lower_bound(
      begin, end, code_point, [](const Regex::Range& r, uint32_t value) { return r.high < value; });
  return range != end && range->low <= code_point;
}

// A thread has read the first bytes of a code point. It is dropped when none of those that are left
// is in the set; when all are, the rest of the bytes need not be told apart.
void LineMatcher::AdvanceBegun(size_t pc, uint32_t value, uint32_t to_come) {
  uint32_t low = value << (6 * to_come);
  uint32_t high = ((value + 1) << (6 * to_come)) - 1;
  const Regex::Instruction& set = regex_.program_[pc];
  const Regex::Range* begin = regex_.ranges_.data() + set.x;
  const Regex::Range* end = begin + set.y;
  const Regex::Range* range = std::lower_bound(
      begin, end, low, [](const Regex::Range& r, uint32_t at) { return r.high < at; });
  if (range == end || range->low > high) return;
  // With value 0 (the leads E0 and F0) some continuations would be overlong forms.
  bool all = value != 0 && range->low <= low && range->high >= high;
  auto thread = static_cast<uint32_t>(pc) | to_come << 14;
  next_.push_back(all ? thread | 1U << 16 : thread | value << 17);
}

void LineMatcher::Advance(Thread thread, uint8_t byte) {
  size_t pc = thread & 0x3FFF;
  uint32_t to_come = thread >> 14 & 3;
  auto done = [&] { Follow(pc + 1, 0, next_); };
  work_++;
  if (to_come == 0) {
    if (regex_.program_[pc].op != Regex::Op::kSet) return;
    if (byte < 0x80) {
      if (Contains(pc, byte)) done();
    } else if (byte >= 0xC2 && byte <= 0xDF) {
      AdvanceBegun(pc, byte & 0x1F, 1);
    } else if (byte >= 0xE0 && byte <= 0xEF) {
      AdvanceBegun(pc, byte & 0x0F, 2);
    } else if (byte >= 0xF0 && byte <= 0xF4) {
      AdvanceBegun(pc, byte & 0x07, 3);
    }
    return;
  }
  if ((byte & 0xC0) != 0x80) return;
  bool any = (thread >> 16 & 1) != 0;
  if (any && to_come > 1) {
    next_.push_back(static_cast<uint32_t>(pc) | (to_come - 1) << 14 | 1U << 16);
    return;
  }
  uint32_t value = thread >> 17 << 6 | (byte & 0x3F);
  if (to_come == 1) {
    if (any || Contains(pc, value)) done();
    return;
  }
  bool overlong = value < (to_come == 3 ? 0x10 : 0x20);
  if (!overlong) AdvanceBegun(pc, value, to_come - 1);
}

uint32_t LineMatcher::AtLineEnd(const State& state) {
  bool matches = (state.flags & kMatchedBeforeCr) != 0;
  // A CR before the line's end is no part of it.
  if ((state.flags & kAfterCr) == 0) {
    matches = Resolve(state, true, (state.flags & kAfterWord) != 0);
  }
  return matches ? kMatched : kFirstState;
}

// What follows a state by a byte: kMatched, at a line's end the first state, or else kUnmade and
// the threads and flags in next_ and next_flags_.
uint32_t LineMatcher::Step(const State& state, uint8_t byte) {
  if (byte == '\n') return AtLineEnd(state);
  bool word = regex_.has_word_edges_ && IsWordByte(byte);
  bool after_word = (state.flags & kAfterWord) != 0;
  next_flags_ = word ? kAfterWord : 0;
  if (byte == '\r') {
    next_flags_ = kAfterCr;
    if (Resolve(state, true, after_word)) next_flags_ |= kMatchedBeforeCr;
  }
  if (Resolve(state, false, after_word != word)) return kMatched;
  next_.clear();
  round_++;
  for (Thread thread : resolved_) Advance(thread, byte);
  Follow(0, 0, next_);  // a match may start at any place
  return kUnmade;
}

uint32_t LineMatcher::Make(uint32_t from, uint8_t byte) {
  uint32_t next = Step(states_[from], byte);
  if (next == kUnmade) {
    size_t bytes = rows_.size() * sizeof rows_[0] + threads_.size() * sizeof threads_[0];
    if (bytes >= kMaxCacheBytes) {
      std::vector<Thread> kept = std::move(next_);
      Forget();
      next_ = std::move(kept);
      return Intern(next_flags_);
    }
    next = Intern(next_flags_);
  }
  rows_[from * size_t{256} + byte] = next;
  return next;
}

LineMatcher::Found LineMatcher::Feed(std::string_view text, size_t& at) {
  const char* p = text.data() + at;
  const char* end = text.data() + text.size();
  Found found = Found::kNothing;
  work_ = 0;
  const uint32_t* rows = rows_.data();
  uint32_t state = state_;
  while (p < end) {
    auto byte = static_cast<uint8_t>(*p);
    uint32_t next = rows[state * size_t{256} + byte];
    if (next > kDead) {
      p++;
      if (next == state) {
        // Most text is no part of a match: it is passed faster where one load need not wait for
        // another.
        const uint32_t* row = rows + state * size_t{256};
        while (p < end && row[static_cast<uint8_t>(*p)] == state) p++;
      }
      state = next;
      continue;
    }
    if (next == kUnmade && state != kDead) {
      next = Make(state, byte);
      rows = rows_.data();
    }
    if (next == kMatched) {
      state = kFirstState;
      found = Found::kMatch;
      break;
    }
    if (state == kDead || next == kDead) {
      // Nothing can match before the next line.
      const void* line_end = std::memchr(p, '\n', static_cast<size_t>(end - p));
      state = line_end == nullptr ? kDead : kFirstState;
      p = line_end == nullptr ? end : static_cast<const char*>(line_end) + 1;
      continue;
    }
    state = next;
    p++;
    if (work_ >= kPauseWork) {
      found = Found::kPause;
      break;
    }
  }
  state_ = state;
  at = static_cast<size_t>(p - text.data());
  return found;
}

bool LineMatcher::FeedEnd() {
  bool matches = state_ != kDead && AtLineEnd(states_[state_]) == kMatched;
  Restart();
  return matches;
}

bool LineMatcher::Matches(std::string_view line) {
  Restart();
  size_t at = 0;
  Found found = Found::kPause;
  while (found == Found::kPause) found = Feed(line, at);
  if (found == Found::kMatch) {
    Restart();
    return true;
  }
  return FeedEnd();
}

}  // namespace caisson::guest
