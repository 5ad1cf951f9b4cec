#include "guest/regex.h"

#include <algorithm>
#include <string>
#include <utility>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Pairs of first and last characters.
struct NamedClass {
  std::string_view name;
  std::string_view pairs;
};
constexpr std::string_view kDigits = "09";
constexpr std::string_view kSpaces = "\t\n\f\r  ";
constexpr std::string_view kWords = "09AZ__az";
constexpr NamedClass kPosixClasses[] = {
    {"alnum", "09AZaz"},
    {"alpha", "AZaz"},
    {"ascii", {"\0\x7f", 2}},
    {"blank", "\t\t  "},
    {"cntrl", {"\0\x1f\x7f\x7f", 4}},
    {"digit", kDigits},
    {"graph", "!~"},
    {"lower", "az"},
    {"print", " ~"},
    {"punct", "!/:@[`{~"},
    {"space", "\t\r  "},
    {"upper", "AZ"},
    {"word", kWords},
    {"xdigit", "09AFaf"},
};

uint32_t Decode(std::string_view sequence) {
  auto lead = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return lead;
  uint32_t value = lead & (0xFFU >> (sequence.size() + 1));
  for (char c : sequence.substr(1)) value = (value << 6) | (static_cast<uint8_t>(c) & 0x3F);
  return value;
}

}  // namespace

// Recursive descent that writes the program as it reads. What a piece of pattern compiles to is one
// piece of program that begins at its start and leaves at its end. Steps return false when they
// have put the fault into error_.
class RegexParser {
 public:
  RegexParser(std::string_view pattern, bool ignore_case)
      : pattern_(pattern), ignore_case_(ignore_case) {}

  Result<Regex> Run() {
    if (Whole()) return std::move(regex_);
    return Fail(ErrorCode::kInvalidPattern, std::move(error_));
  }

 private:
  using Op = Regex::Op;
  using Range = Regex::Range;
  using Ranges = std::vector<Range>;
  using Instruction = Regex::Instruction;

  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool Take(char c) {
    bool here = !AtEnd() && pattern_[at_] == c;
    if (here) at_++;
    return here;
  }
  // "the pattern has WHAT `as it is written, up to here`WHY at byte N"
  bool Bad(const char* what, size_t from, const char* why = "") {
    error_ = "the pattern has ";
    error_ += what;
    error_ += " `";
    size_t end = std::min(std::max(at_, from + 1), pattern_.size());
    error_ += ReplaceBadUtf8(pattern_.substr(from, std::min<size_t>(end - from, 40)));
    error_ += '`';
    error_ += why;
    error_ += " at byte ";
    AppendDecimal(error_, static_cast<int64_t>(from));
    return false;
  }
  void Emit(Op op, int32_t x = 0, int32_t y = 0) { regex_.program_.push_back({op, x, y}); }
  size_t Size() const { return regex_.program_.size(); }
  static int32_t Distance(size_t from, size_t to) {
    return static_cast<int32_t>(to) - static_cast<int32_t>(from);
  }
  bool HasRoom(size_t more) {
    if (Size() + more < Regex::kMaxInstructions) return true;
    error_ =
        "the pattern is too large: with its repetitions written out it has over 10000 steps at "
        "byte ";
    AppendDecimal(error_, static_cast<int64_t>(at_));
    return false;
  }

  bool Whole() {
    if (pattern_.empty()) {
      error_ = "the pattern is empty";
      return false;
    }
    if (pattern_.size() > Regex::kMaxPatternBytes) {
      error_ = "the pattern exceeds 16384 bytes";
      return false;
    }
    if (!Alternatives(0)) return false;
    if (!AtEnd()) return Bad("an unmatched", at_);
    Emit(Op::kMatch);
    return true;
  }

  // Up to the end or a ')' that is not its own.
  bool Alternatives(int depth) {
    if (depth > Regex::kMaxDepth) return Bad("over 250 groups within each other, with", at_ - 1);
    bool outer_ignore_case = ignore_case_;
    std::vector<size_t> jumps;
    size_t begin = Size();
    while (!AtEnd() && Peek() != ')') {
      if (!HasRoom(2)) return false;
      if (Take('|')) {
        auto& program = regex_.program_;
        program.insert(program.begin() + static_cast<ptrdiff_t>(begin),
                       Instruction{Op::kSplit, 1, Distance(begin, Size() + 2)});
        jumps.push_back(Size());
        Emit(Op::kJump);
        begin = Size();
      } else if (!Repeated(depth)) {
        return false;
      }
    }
    for (size_t jump : jumps) regex_.program_[jump].x = Distance(jump, Size());
    ignore_case_ = outer_ignore_case;
    return true;
  }

  struct Repeat {
    int32_t min = 0;
    int32_t max = 0;  // kNoEnd: without end
  };
  static constexpr int32_t kNoEnd = -1;
  // Whether an operator stands here; it is taken. A lazy one finds the same lines.
  bool TakeRepeat(Repeat& repeat) {
    switch (Peek()) {
      case '*':
        repeat = {0, kNoEnd};
        break;
      case '+':
        repeat = {1, kNoEnd};
        break;
      case '?':
        repeat = {0, 1};
        break;
      case '{':
        if (!TakeCounts(repeat)) return false;
        break;
      default:
        return false;
    }
    at_++;
    Take('?');
    return true;
  }
  // {n}, {n,} or {n,m} but for the '}'; anything else is text.
  bool TakeCounts(Repeat& repeat) {
    size_t start = at_;
    at_++;
    bool good = TakeCount(repeat.min);
    repeat.max = repeat.min;
    if (good && Take(',')) {
      repeat.max = kNoEnd;
      if (Peek() != '}') good = TakeCount(repeat.max);
    }
    if (good && Peek() == '}') return true;
    at_ = start;
    return false;
  }
  bool TakeCount(int32_t& value) {
    if (!IsDigit(Peek()) || (Peek() == '0' && IsDigit(Peek(1)))) return false;
    value = 0;
    for (; IsDigit(Peek()); at_++) value = std::min(value * 10 + (Peek() - '0'), 1'000'000);
    return true;
  }

  bool Repeated(int depth) {
    size_t start = at_;
    Repeat repeat;
    if (TakeRepeat(repeat)) return Bad("nothing to repeat before", start);
    size_t begin = Size();
    bool is_text = true;
    if (!Atom(depth, is_text)) return false;
    size_t op = at_;
    if (!is_text || !TakeRepeat(repeat)) return true;
    if (std::max(repeat.min, repeat.max) > Regex::kMaxRepeat) {
      return Bad("a repeat count over 1000", op);
    }
    if (repeat.max != kNoEnd && repeat.max < repeat.min) {
      return Bad("a repeat count that ends below its start", op);
    }
    if (!Apply(begin, repeat)) return false;
    return !TakeRepeat(repeat) || Bad("a repetition of a repetition", op);
  }
  // Repeats the program from `begin` to its end.
  bool Apply(size_t begin, Repeat repeat) {
    auto& program = regex_.program_;
    std::vector<Instruction> part(program.begin() + static_cast<ptrdiff_t>(begin), program.end());
    auto append = [&] {
      for (const Instruction& instruction : part) program.push_back(instruction);
    };
    program.resize(begin);
    auto copies = static_cast<size_t>(std::max({repeat.min, repeat.max, 1}));
    if (!HasRoom((part.size() + 1) * copies + 1)) return false;
    for (int32_t i = 0; i < repeat.min; i++) append();
    auto size = static_cast<int32_t>(part.size());
    if (repeat.max == kNoEnd && repeat.min > 0) {
      Emit(Op::kSplit, -size, 1);
    } else if (repeat.max == kNoEnd) {
      Emit(Op::kSplit, 1, size + 2);
      append();
      Emit(Op::kJump, -(size + 1));
    }
    for (int32_t left = repeat.max - repeat.min; left > 0; left--) {
      Emit(Op::kSplit, 1, left * (size + 1));
      append();
    }
    return true;
  }

  // `is_text` becomes false for flags alone, as (?i).
  bool Atom(int depth, bool& is_text) {
    size_t start = at_;
    switch (Peek()) {
      case '(':
        return Group(depth, is_text);
      case '[':
        return Class();
      case '\\':
        return EscapeOutside();
      case '.':
        EmitSet({{0, kMaxCodePoint}});
        break;
      case '^':
        Emit(Op::kBegin);
        break;
      case '$':
        Emit(Op::kEnd);
        break;
      default: {
        uint32_t literal = 0;
        return CodePoint(literal) && Literal(literal, start);
      }
    }
    at_++;
    return true;
  }
  bool Group(int depth, bool& is_text) {
    size_t start = at_;
    at_++;
    bool outer_ignore_case = ignore_case_;
    bool flags = Take('?');
    if (flags) {
      if (!Flags(start)) return false;
      is_text = !Take(')');
      if (!is_text) return true;
      at_++;  // the ':'
    }
    if (!Alternatives(depth + 1)) return false;
    if (!Take(')')) {
      at_ = start;
      return Bad("an unclosed", start);
    }
    if (flags) ignore_case_ = outer_ignore_case;
    return true;
  }
  // Behind "(?", up to its ':' or ')'.
  bool Flags(size_t start) {
    bool off = false;
    bool any = false;
    for (;; at_++) {
      char c = Peek();
      if (any ? c == ':' || c == ')' : c == ':' && !off) return true;
      // Without line breaks in a text and without captures, m, s and U change nothing.
      if (c == 'i') ignore_case_ = !off;
      bool flag = c == 'i' || c == 'm' || c == 's' || c == 'U';
      if (c == '-' && !off) {
        off = true;
        any = false;
      } else if (flag) {
        any = true;
      } else {
        break;
      }
    }
    bool looks = Peek() == '=' || Peek() == '!' || Peek() == '<';
    at_++;
    return Bad("an unsupported group", start, looks ? " (look-around or a named one)" : "");
  }

  bool CodePoint(uint32_t& value) {
    size_t length = Utf8SequenceLength(pattern_.substr(at_));
    if (length == 0) return Bad("bytes that are no UTF-8,", at_);
    value = Decode(pattern_.substr(at_, length));
    at_ += length;
    return true;
  }
  bool Literal(uint32_t value, size_t start) {
    if (value == '\n') return Bad("a line break, which no line contains,", start);
    EmitSet({{value, value}});
    return true;
  }

  // Behind a '\' at `start`: an escape for one character.
  bool EscapedCharacter(size_t start, uint32_t& value) {
    if (AtEnd()) return Bad("nothing behind", start);
    char c = Peek();
    auto octal = [&] { return Peek() >= '0' && Peek() <= '7'; };
    constexpr std::string_view kNames = "aftnrv_";
    constexpr std::string_view kValues = "\a\f\t\n\r\v_";
    size_t name = kNames.find(c);
    if (name != std::string_view::npos) {
      value = static_cast<uint8_t>(kValues[name]);
    } else if (static_cast<uint8_t>(c) < 0x80 && !IsWordByte(static_cast<uint8_t>(c))) {
      value = static_cast<uint8_t>(c);
    } else if (c == '0' || (octal() && Peek(1) >= '0' && Peek(1) <= '7')) {
      value = 0;
      for (int i = 0; i < 3 && octal(); i++, at_++) {
        value = value * 8 + static_cast<uint32_t>(Peek() - '0');
      }
      return true;
    } else if (c == 'x') {
      at_++;
      return Hexadecimal(start, value);
    } else {
      at_ += std::max<size_t>(Utf8SequenceLength(pattern_.substr(at_)), 1);
      const char* why = "";
      if (c >= '1' && c <= '9') why = " (a back-reference)";
      if (c == 'p' || c == 'P') why = " (a Unicode class)";
      return Bad("an unsupported escape", start, why);
    }
    at_++;
    return true;
  }
  // Two digits, or any number of them in braces.
  bool Hexadecimal(size_t start, uint32_t& value) {
    bool braces = Take('{');
    value = 0;
    int digits = 0;
    for (; braces || digits < 2; at_++, digits++) {
      char c = AsciiLower(Peek());
      if (!IsDigit(c) && (c < 'a' || c > 'f')) break;
      value = value * 16 + static_cast<uint32_t>(IsDigit(c) ? c - '0' : c - 'a' + 10);
      value = std::min(value, kMaxCodePoint + 1);
    }
    bool good = braces ? digits > 0 && Take('}') : digits == 2;
    return (good && value <= kMaxCodePoint) || Bad("a wrong hexadecimal escape", start);
  }
  // \d and the like, taken.
  bool TakeClassEscape(Ranges& set) {
    if (Peek() != '\\') return false;
    std::string_view pairs;
    char name = AsciiLower(Peek(1));
    if (name == 'd') pairs = kDigits;
    if (name == 's') pairs = kSpaces;
    if (name == 'w') pairs = kWords;
    if (pairs.empty()) return false;
    AddPairs(set, pairs, name != Peek(1));
    at_ += 2;
    return true;
  }
  bool EscapeOutside() {
    size_t start = at_;
    Ranges set;
    if (TakeClassEscape(set)) {
      EmitSet(std::move(set));
      return true;
    }
    char c = Peek(1);
    if (c == 'A' || c == 'z') {
      Emit(c == 'A' ? Op::kBegin : Op::kEnd);
    } else if (c == 'b' || c == 'B') {
      regex_.has_word_edges_ = true;
      Emit(c == 'b' ? Op::kWordEdge : Op::kNoWordEdge);
    } else {
      at_++;
      uint32_t literal = 0;
      return EscapedCharacter(start, literal) && Literal(literal, start);
    }
    at_ += 2;
    return true;
  }

  bool Class() {
    size_t start = at_;
    at_++;
    bool negated = Take('^');
    Ranges set;
    // A ']' that comes first is a member.
    for (bool first = true; first || Peek() != ']'; first = false) {
      if (AtEnd()) {
        at_ = start;
        return Bad("an unclosed", start);
      }
      if (TakeClassEscape(set)) continue;
      bool taken = false;
      if (Peek() == '[' && Peek(1) == ':' && !PosixClass(set, taken)) return false;
      if (taken) continue;
      size_t item = at_;
      Range range{};
      if (!ClassCharacter(range.low)) return false;
      range.high = range.low;
      if (Peek() == '-' && Peek(1) != ']' && at_ + 1 < pattern_.size()) {
        at_++;
        if (!ClassCharacter(range.high)) return false;
        if (range.high < range.low) return Bad("a range that runs backwards,", item);
      }
      set.push_back(range);
    }
    at_++;
    if (ignore_case_) FoldCase(set);
    if (negated) Negate(set);
    EmitSet(std::move(set));
    return true;
  }
  bool ClassCharacter(uint32_t& value) {
    size_t start = at_;
    return Take('\\') ? EscapedCharacter(start, value) : CodePoint(value);
  }
  // [:name:] or [:^name:], if it is of that form.
  bool PosixClass(Ranges& set, bool& taken) {
    size_t start = at_;
    size_t end = pattern_.find(":]", at_ + 2);
    if (end == std::string_view::npos) return true;
    std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
    bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    at_ = end + 2;
    for (const NamedClass& known : kPosixClasses) {
      if (known.name == name) {
        AddPairs(set, known.pairs, negated);
        taken = true;
        return true;
      }
    }
    return Bad("an unknown class", start);
  }

  void AddPairs(Ranges& set, std::string_view pairs, bool negated) const {
    Ranges ranges;
    for (size_t i = 0; i < pairs.size(); i += 2) {
      ranges.push_back({static_cast<uint8_t>(pairs[i]), static_cast<uint8_t>(pairs[i + 1])});
    }
    if (ignore_case_) FoldCase(ranges);
    if (negated) Negate(ranges);
    set.insert(set.end(), ranges.begin(), ranges.end());
  }
  static void FoldCase(Ranges& set) {
    for (size_t i = 0, size = set.size(); i < size; i++) {
      auto fold = [&](uint32_t from, uint32_t to, int32_t by) {
        uint32_t low = std::max(set[i].low, from);
        uint32_t high = std::min(set[i].high, to);
        if (low <= high) set.push_back({low + by, high + by});
      };
      fold('A', 'Z', 32);
      fold('a', 'z', -32);
    }
  }
  // Sorts and joins.
  static void Tidy(Ranges& set) {
    std::sort(set.begin(), set.end(), [](Range a, Range b) { return a.low < b.low; });
    size_t kept = 0;
    for (Range range : set) {
      if (kept > 0 && range.low <= set[kept - 1].high + 1) {
        set[kept - 1].high = std::max(set[kept - 1].high, range.high);
      } else {
        set[kept++] = range;
      }
    }
    set.resize(kept);
  }
  static void Negate(Ranges& set) {
    Tidy(set);
    Ranges rest;
    uint32_t from = 0;
    for (Range range : set) {
      if (range.low > from) rest.push_back({from, range.low - 1});
      from = range.high + 1;
    }
    if (from <= kMaxCodePoint) rest.push_back({from, kMaxCodePoint});
    set = std::move(rest);
  }
  void EmitSet(Ranges set) {
    if (ignore_case_) FoldCase(set);
    Tidy(set);
    size_t begin = regex_.ranges_.size();
    // UTF-8 has no surrogates.
    auto add = [&](uint32_t low, uint32_t high) {
      if (low <= high) regex_.ranges_.push_back({low, high});
    };
    for (Range range : set) {
      if (range.high < 0xD800 || range.low > 0xDFFF) {
        add(range.low, range.high);
      } else {
        add(range.low, 0xD7FF);
        add(0xE000, range.high);
      }
    }
    Emit(Op::kSet, static_cast<int32_t>(begin), Distance(begin, regex_.ranges_.size()));
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  bool ignore_case_;
  Regex regex_;
  std::string error_;
};

Result<Regex> Regex::Compile(std::string_view pattern, bool ignore_case) {
  return RegexParser(pattern, ignore_case).Run();
}

}  // namespace caisson::guest
