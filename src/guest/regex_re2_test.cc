// Our regular expressions say what RE2 says: over a table, and over random patterns and lines.
#include <gtest/gtest.h>

#include <random>

#include "guest/regex_compare.h"

namespace caisson::guest {
namespace {

const std::string kLines[] = {"",
                              "a",
                              "b",
                              "ab",
                              "aab",
                              "abc abc",
                              "foo bar",
                              "foo.bar",
                              "FOO Bar_9",
                              "x=1; y=22;",
                              "  indented",
                              "tail  ",
                              "a\tb",
                              "line\r",
                              "\r",
                              "\r\r",
                              "é",
                              "aéb",
                              "日本語 text",
                              "€100",
                              "a😀b",
                              "\xff",
                              "a\xff"
                              "b",
                              "\xe2\x82",
                              "caf\xe9 x",
                              "{}[]()^$.|*+?\\-",
                              std::string("nul\0byte", 8),
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

TEST(RegexRe2Test, Table) {
  for (const char* pattern : {"a",
                              "a.b",
                              ".",
                              "^$",
                              "^a",
                              "b$",
                              "a|b",
                              "a|",
                              "|",
                              "()",
                              "(|a)+b",
                              "(a+)+$",
                              "(a*)*b",
                              "(a|aa)*b",
                              "ab*c",
                              "a+b",
                              "a?b",
                              "a{2}",
                              "a{2,}",
                              "a{1,2}b",
                              "a{0}b",
                              "a{,2}",
                              "a{",
                              "a{1",
                              "a{1,",
                              "a{01}",
                              "x{2}{3}",
                              "a**",
                              "a*?",
                              "a+?b",
                              "a??b",
                              "a{2}?",
                              "a*+",
                              "[abc]",
                              "[^abc]",
                              "[a-c]+",
                              "[]a]",
                              "[^]a]",
                              "[a-]",
                              "[-a]",
                              "[a-b-c]",
                              "[\\w-z]",
                              "[\\d\\s]",
                              "[^\\w\\s]",
                              "\\d+",
                              "\\D",
                              "\\s",
                              "\\S",
                              "\\w+",
                              "\\W",
                              "\\bfoo\\b",
                              "\\Boo",
                              "\\B",
                              "\\b",
                              "\\b^",
                              "^\\b",
                              "$\\b",
                              "\\b$",
                              "\\bé",
                              "é\\b",
                              "\\B.",
                              "[[:alpha:]]+",
                              "[[:^alpha:]]",
                              "[[:punct:]]",
                              "[[:space:][:digit:]]",
                              "[[:word:]]",
                              "[[:nope:]]",
                              "[[:alpha]",
                              "\\x41",
                              "\\x{1F600}",
                              "\\x{110000}",
                              "\\x4",
                              "\\101",
                              "\\0",
                              "\\07",
                              "\\t",
                              "\\_",
                              "\\é",
                              "\\.",
                              "é",
                              "[é]",
                              "[^é]",
                              "[à-ü]",
                              "[日-語]+",
                              ".{3}",
                              "^.{6}$",
                              "[€-😀]",
                              "[^a]b",
                              "\\q",
                              "(?i)foo",
                              "(?i:foo) b",
                              "foo (?i:bar)",
                              "(?i)f|B",
                              "(a(?i)b|c)",
                              "(?-i)a",
                              "(?i-s)a",
                              "(?s).",
                              "(?m)^a$",
                              "(?U)a+",
                              "(?x)a",
                              "(?",
                              "(?:",
                              "(?:a)",
                              "(",
                              ")",
                              "a)",
                              "(a",
                              "*",
                              "+a",
                              "?",
                              "{2}",
                              "|*",
                              "(*)",
                              "(?i)*",
                              "^*",
                              "\\b+",
                              "$",
                              "$a",
                              "a^",
                              "a$b",
                              "(^|x)a",
                              "a($|b)",
                              "\\Aa\\z",
                              "a\\z",
                              "[z-a]",
                              "[a",
                              "[",
                              "]",
                              "}",
                              "[^]",
                              "[]",
                              "\\",
                              "[\\",
                              "[a\\]",
                              "[\\b]",
                              "[a-\\d]",
                              "[\\x41-\\x{5A}]",
                              "\\r",
                              "e\\r",
                              ".$",
                              "^.$",
                              "\r",
                              ".\\r$",
                              "(a{100}){10}",
                              "(?:a{2}){2}",
                              "((((a))))",
                              "[^\\x00-\\x{10FFFF}]",
                              "x*",
                              "(x+x+)+y",
                              "\\xff",
                              "[\\x80-\\xff]",
                              "[[:ascii:]]+$",
                              "^[[:ascii:]]*$",
                              "\\x{D7FF}",
                              "[\\x{D000}-\\x{F000}]"}) {
    for (bool ignore_case : {false, true}) {
      RegexPair pair(pattern, ignore_case);
      if (pair.re2_refuses_size()) continue;
      EXPECT_EQ(pair.ours_compiles(), pair.re2_compiles()) << pattern << "\n"
                                                           << pair.error() << "\n"
                                                           << pair.re2_error();
      for (const std::string& line : kLines) {
        EXPECT_TRUE(pair.Agree(line).value_or(true)) << pattern << " on: " << line;
      }
    }
  }
}

// Patterns of the whole syntax that nest and repeat; lines of few characters, so that they match.
class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  std::string Pattern(int depth) {
    std::string text;
    for (size_t parts = 1 + Below(3); parts > 0; parts--) {
      text += Piece(depth);
      if (Below(3) == 0) {
        text += Pick({"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??"});
      }
    }
    if (depth > 0 && Below(4) == 0) text += "|" + Pattern(depth - 1);
    return text;
  }
  std::string Line() {
    std::string text;
    for (size_t parts = Below(12); parts > 0; parts--) {
      text += Pick({"a", "b", "c", "_", " ", "1", "-", "é", "日", "😀", "\xff", "\xe6\x97", "\r"});
    }
    return text;
  }

 private:
  size_t Below(size_t end) { return random_() % end; }
  std::string Pick(std::initializer_list<const char*> from) {
    return from.begin()[Below(from.size())];
  }
  std::string Piece(int depth) {
    if (depth > 0 && Below(3) == 0) {
      return Pick({"(", "(?:", "(?i:", "(?s:"}) + Pattern(depth - 1) + ")";
    }
    return Pick({"a",   "b",   "c",    "é",     "日",     ".",    "\\w",    "\\W",    "\\d",
                 "\\s", "\\S", "[ab]", "[^ab]", "[a-c1]", "[^é]", "[é-日]", "[^\\w]", "[[:alpha:]]",
                 "^",   "$",   "\\b",  "\\B",   "\\x61",  "\\.",  "-"});
  }
  std::mt19937 random_;
};

TEST(RegexRe2Test, RandomPatterns) {
  Maker maker(20'261'130);
  size_t compared = 0;
  size_t matched = 0;
  for (int round = 0; round < 10'000; round++) {
    std::string pattern = maker.Pattern(3);
    RegexPair pair(pattern, round % 5 == 0);
    if (pair.re2_refuses_size()) continue;
    ASSERT_EQ(pair.ours_compiles(), pair.re2_compiles()) << pattern << "\n"
                                                         << pair.error() << "\n"
                                                         << pair.re2_error();
    for (int i = 0; i < 20; i++) {
      std::string line = maker.Line();
      auto agree = pair.Agree(line);
      if (!agree) continue;
      ASSERT_TRUE(*agree) << pattern << " on: " << testing::PrintToString(line);
      compared++;
      matched += pair.Matches(line) ? 1 : 0;
    }
  }
  // Neither all nor none: the lines tell the patterns apart.
  EXPECT_GT(compared, 60'000U);
  EXPECT_GT(matched, compared / 10);
  EXPECT_LT(matched, compared - compared / 10);
}

}  // namespace
}  // namespace caisson::guest
