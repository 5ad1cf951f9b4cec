// Regular expressions: the syntax, what is refused and how it is named, lines in pieces of text,
// and time.
#include "guest/regex.h"

#include <gtest/gtest.h>

#include <chrono>

#include "guest/line_finder.h"
#include "guest/line_matcher.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

bool Matches(std::string_view pattern, std::string_view line, bool ignore_case = false) {
  auto regex = Regex::Compile(pattern, ignore_case);
  EXPECT_TRUE(regex.has_value()) << pattern << ": " << regex.error().message;
  return regex && LineMatcher(*std::move(regex)).Matches(line);
}

std::string ErrorOf(std::string_view pattern) {
  auto regex = Regex::Compile(pattern, false);
  if (regex) return "none";
  EXPECT_EQ(regex.error().code, ErrorCode::kInvalidPattern);
  return regex.error().message;
}

TEST(RegexTest, Syntax) {
  struct Row {
    const char* pattern;
    const char* line;
    bool matches;
  };
  for (const Row& row : {Row{"b", "abc", true},
                         {"^b", "abc", false},
                         {"c$", "abc", true},
                         {"a.c", "aéc", true},
                         {"a.c",
                          "a\xff"
                          "c",
                          false},
                         {"a..c", "aéc", false},
                         {"x|bc", "abc", true},
                         {"^(ab|a)c$", "abc", true},
                         {"ab{2,3}c", "abbc", true},
                         {"ab{2,3}c", "abbbbc", false},
                         {"ab{0}c", "ac", true},
                         {"a{,2}", "a{,2}", true},
                         {"\\bb", "a b", true},
                         {"\\bb", "ab", false},
                         {"\\Bb", "ab", true},
                         {"[^a-c]", "abc", false},
                         {"[]x]", "]", true},
                         {"[[:upper:]]", "aB", true},
                         {"\\d{3}-\\d", "tel 555-1", true},
                         {"\\x{20AC}", "€", true},
                         {"^[α-ω]+$", "λόγος", false},
                         {"^[α-ώ]+$", "λόγος", true},
                         {"(?i)ABC", "xabcx", true},
                         {"(?i:A)B", "ab", false},
                         {"\\.", "x", false},
                         {"a+?", "ca", true},
                         {"\\Aa\\z", "a", true},
                         {"[^é]", "é", false}}) {
    EXPECT_EQ(Matches(row.pattern, row.line), row.matches) << row.pattern << " on " << row.line;
  }
  EXPECT_TRUE(Matches("straße", "STRAßE", true));
  EXPECT_FALSE(Matches("é", "É", true));  // ASCII letters only
}

TEST(RegexTest, OneCarriageReturnBeforeTheEndIsNoText) {
  EXPECT_TRUE(Matches("o$", "foo\r"));
  EXPECT_FALSE(Matches("\\r", "foo\r"));
  EXPECT_TRUE(Matches("\\r$", "foo\r\r"));
  EXPECT_TRUE(Matches("o\\rb", "foo\rbar"));
  EXPECT_FALSE(Matches("^..$", "a\r"));
  EXPECT_TRUE(Matches("^$", "\r"));
}

TEST(RegexTest, WhatIsRefusedIsNamedWithItsPlace) {
  struct Row {
    const char* pattern;
    const char* part;
  };
  for (const Row& row : {Row{"", "is empty"},
                         {"a(b", "an unclosed `(` at byte 1"},
                         {"a)", "an unmatched `)` at byte 1"},
                         {"x[a", "an unclosed `[` at byte 1"},
                         {"a**", "a repetition of a repetition `**` at byte 1"},
                         {"|*", "nothing to repeat before `*` at byte 1"},
                         {"a{2,1}", "ends below its start `{2,1}` at byte 1"},
                         {"a{1001}", "over 1000 `{1001}` at byte 1"},
                         {"a(?=b)", "unsupported group `(?=` (look-around"},
                         {"(?P<n>a)", "unsupported group `(?P` at byte 0"},
                         {"(a)\\1", "`\\1` (a back-reference) at byte 3"},
                         {"\\pL", "`\\p` (a Unicode class) at byte 0"},
                         {"\\Qa", "unsupported escape `\\Q` at byte 0"},
                         {"a\\", "nothing behind `\\` at byte 1"},
                         {"[b-a]", "`b-a` at byte 1"},
                         {"[[:x:]]", "an unknown class `[:x:]` at byte 1"},
                         {"\\x{110000}", "a wrong hexadecimal escape `\\x{110000}`"},
                         {"ab\xff", "no UTF-8, `\uFFFD` at byte 2"},
                         {"a\\nb", "a line break, which no line contains, `\\n` at byte 1"},
                         {"((a{100}){100}){100}", "too large"}}) {
    EXPECT_NE(ErrorOf(row.pattern).find(row.part), std::string::npos)
        << row.pattern << ": " << ErrorOf(row.pattern);
  }
  EXPECT_EQ(ErrorOf("[^\n]"), "none");
  EXPECT_NE(ErrorOf(std::string(20'000, 'a')), "none");
  EXPECT_NE(ErrorOf(std::string(300, '(') + std::string(300, ')')).find("over 250 groups"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(".{1000}"), "none");
}

// The numbers of the lines that match.
std::vector<size_t> LinesOf(std::string_view pattern, std::string_view text) {
  auto finder = LineFinder::Make(std::string(pattern), true, false);
  finder->Load(text);
  finder->StartLine();
  std::vector<size_t> lines;
  for (size_t at = 0; at < text.size();) {
    auto found = finder->Find(at);
    if (found == LineFinder::Found::kPause) continue;
    if (found == LineFinder::Found::kNothing) break;
    auto before = text.substr(0, at);
    lines.push_back(1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n')));
    at = std::min(text.find('\n', at), text.size()) + 1;
  }
  return lines;
}

TEST(RegexTest, ManyLinesAtOnce) {
  using Lines = std::vector<size_t>;
  EXPECT_EQ(LinesOf("^$", "\na\n\n\r\nb"), (Lines{1, 3, 4}));
  EXPECT_EQ(LinesOf("^a", "a\nba\na"), (Lines{1, 3}));
  EXPECT_EQ(LinesOf("a$", "a\r\nab\nba"), (Lines{1, 3}));
  EXPECT_EQ(LinesOf("x*", "a\n\nb\n"), (Lines{1, 2, 3}));
  EXPECT_EQ(LinesOf("a[^x]b", "a\nb\nacb\n"), (Lines{3}));
  EXPECT_EQ(LinesOf("\\Bb\\b", "b\nab\nab"), (Lines{2, 3}));
}

TEST(RegexTest, TimeIsLinearInTheText) {
  auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(Matches("(a+)+$", std::string(100'000, 'a') + "b"));
  EXPECT_FALSE(Matches("(x+x+)+y", std::string(100'000, 'x')));
  EXPECT_FALSE(Matches("(.*)(.*)(.*)(.*)(.*)[^\\x00-\\x{10FFFF}]", std::string(100'000, 'x')));
  // More states than the cache holds: a different one nearly at each byte.
  std::string noise;
  uint32_t random = 1;
  for (int i = 0; i < 20'000; i++) {
    random = random * 1'103'515'245 + 12'345;
    noise += (random >> 16) % 2 == 0 ? 'a' : 'b';
  }
  EXPECT_FALSE(Matches("a[ab]{300}c", noise));
  EXPECT_TRUE(Matches("a[ab]{300}c", noise + "c" + noise) ||
              Matches("b[ab]{300}c", noise + "c" + noise));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(FindBytesTest, AgreesWithTheStandard) {
  std::string text;
  uint32_t random = 7;
  for (int i = 0; i < 600; i++) {
    random = random * 1'103'515'245 + 12'345;
    text += static_cast<char>('a' + (random >> 16) % 3);
  }
  for (size_t size = 1; size < 40; size++) {
    for (size_t at = 0; at + size <= text.size(); at += 7) {
      std::string_view needle = std::string_view(text).substr(at, size);
      EXPECT_EQ(FindBytes(text, needle, 0), text.find(needle));
      EXPECT_EQ(FindBytes(text, needle, at / 2), text.find(needle, at / 2));
    }
  }
  EXPECT_EQ(FindBytes("abc", "abcd", 0), std::string_view::npos);
  EXPECT_EQ(FindBytes("abc", "c", 4), std::string_view::npos);
  // Repeated bytes do not make it quadratic.
  std::string middle = std::string(30'000, 'a') + "b" + std::string(30'000, 'a');
  EXPECT_EQ(FindBytes(std::string(4'000'000, 'a'), middle, 0), std::string_view::npos);
}

}  // namespace
}  // namespace caisson::guest
