// glob and grep on real trees. Case numbers are those of the reported faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "guest_process.h"

namespace caisson::guest {
namespace {

using testing::ElementsAre;
namespace json = boost::json;

class GuestSearch : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    guest_ = GuestProcess::Start({}, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (guest_) EXPECT_EQ(guest_->Health(), "ok");
  }
  void Sh(const std::string& command) { ASSERT_EQ(guest_->Shell(command).ExitCode(), 0); }
  HttpResponse Glob(json::object body) {
    if (!body.contains("path")) body["path"] = ".";
    return guest_->Call("POST", kPathGlob, json::serialize(body));
  }
  HttpResponse Grep(json::object body) {
    if (!body.contains("path")) body["path"] = ".";
    return guest_->Call("POST", kPathGrep, json::serialize(body));
  }
  static std::vector<std::string> Paths(const HttpResponse& response) {
    std::vector<std::string> paths;
    auto value = response.Json();
    if (!value.as_object().contains("matches")) return {response.body};
    for (const auto& match : value.at("matches").as_array()) {
      paths.emplace_back(match.at("path").as_string());
    }
    return paths;
  }
  // As `grep -n -C` prints it.
  static std::string Printed(const HttpResponse& response) {
    std::string out;
    std::string last_path;
    int64_t last_line = 0;
    auto value = response.Json();
    if (!value.as_object().contains("matches")) return response.body;
    for (const auto& match : value.at("matches").as_array()) {
      std::string path(match.at("path").as_string());
      int64_t line = match.at("line").as_int64();
      if (!out.empty() && (path != last_path || line != last_line + 1)) out += "--\n";
      char mark = match.as_object().contains("context") ? '-' : ':';
      out += path + mark + std::to_string(line) + mark + std::string(match.at("text").as_string());
      out += '\n';
      last_path = path;
      last_line = line;
    }
    return out;
  }
  static std::vector<int64_t> Lines(const HttpResponse& response) {
    std::vector<int64_t> lines;
    for (const auto& match : response.Json().at("matches").as_array()) {
      lines.push_back(match.at("line").as_int64());
    }
    return lines;
  }
  std::unique_ptr<GuestProcess> guest_;
};

TEST_F(GuestSearch, GlobContract) {
  Sh("mkdir -p a/b .h a-b; touch top.py a/x.py a/b/y.py a/b/z.txt .h/q.py .dot.py a-b/w.py");
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}})),
              ElementsAre("a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}, {"bare_any_depth", false}})), ElementsAre("top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "/*.py"}})), ElementsAre("top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "a/**"}})), ElementsAre("a/b/y.py", "a/b/z.txt", "a/x.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "**/b/*.{py,txt}"}})), ElementsAre("a/b/y.py", "a/b/z.txt"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}, {"hidden", true}})),
              ElementsAre(".dot.py", ".h/q.py", "a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}, {"bare_dot_directories", true}})),
              ElementsAre(".h/q.py", "a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "**/*.py"}, {"bare_dot_directories", true}})),
              ElementsAre("a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", ".*"}, {"directories", true}})),
              ElementsAre(".dot.py", ".h"));
  EXPECT_THAT(Paths(Glob({{"pattern", "a*"}, {"directories", true}})), ElementsAre("a", "a-b"));
  std::string absolute = guest_->work_dir();
  EXPECT_THAT(Paths(Glob({{"path", absolute}, {"pattern", "top*"}})),
              ElementsAre(absolute + "/top.py"));
  auto limited = Glob({{"pattern", "*.py"}, {"limit", 2}}).Json();
  EXPECT_EQ(limited.at("reason"), "limit");
  EXPECT_EQ(limited.at("matches").as_array().size(), 2U);
  EXPECT_EQ(Glob({{"pattern", "../**"}}).Code(), "invalid_pattern");
  EXPECT_EQ(Glob({{"pattern", "{a"}}).Code(), "invalid_pattern");
  EXPECT_EQ(
      Glob({{"pattern", "{1,2,3,4,5,6,7,8,9,0}{1,2,3,4,5,6,7,8,9,0}{1,2,3,4,5,6,7,8,9,0}{1,2}"}})
          .Code(),
      "invalid_pattern");
  EXPECT_EQ(Glob({{"path", "none"}, {"pattern", "*"}}).Code(), "file_not_found");
  EXPECT_FALSE(Glob({{"pattern", "*.py"}, {"limit", 4}}).Json().at("truncated").as_bool());
}

TEST_F(GuestSearch, Case28_And32_OddTrees) {
  Sh("mkdir -p a closed; touch a/f closed/x; chmod 0 closed; ln -s .. a/up; ln -s a a2; ln -s loop "
     "loop; ln -s nowhere dangling; mkfifo pipe; echo needle > a/f");
  auto found = Glob({{"pattern", "**/*"}});
  EXPECT_THAT(Paths(found), ElementsAre("a/f", "a/up", "a2", "dangling", "loop", "pipe"));
  EXPECT_EQ(found.Json().at("unreadable").as_int64(), 1);
  auto grep = Grep({{"pattern", "needle"}});
  EXPECT_THAT(Paths(grep), ElementsAre("a/f"));
  EXPECT_EQ(grep.Json().at("unreadable").as_int64(), 1);
}

TEST_F(GuestSearch, Case33_LiteralGrep) {
  Sh("printf '%s\\n' 'a.b*c[d](e)$^|\\' '-e' 'plain .* text' > f; printf 'a.b*c\\000' > bin; "
     "head -c 5000000 /dev/zero | tr '\\0' q > long; echo ' tail .*' >> long; printf 'crlf "
     ".*\\r\\n' > crlf");
  EXPECT_THAT(Paths(Grep({{"pattern", ".*"}})), ElementsAre("crlf", "f", "long"));
  for (const char* pattern : {"[", "\\", "-e", "$^|"}) {
    auto found = Grep({{"pattern", pattern}, {"path", "f"}});
    EXPECT_EQ(found.Json().at("matches").as_array().size(), 1U) << pattern << found.body;
  }
  auto all = Grep({{"pattern", "a.b*c"}}).Json();
  EXPECT_EQ(all.at("binary_skipped").as_int64(), 1);
  EXPECT_EQ(all.at("files_searched").as_int64(), 3);
  auto tail = Grep({{"pattern", "tail"}, {"path", "long"}}).Json().at("matches").at(0);
  EXPECT_EQ(tail.at("text").as_string().size(), 2000U);
  EXPECT_TRUE(tail.at("cut").as_bool());
  EXPECT_EQ(Grep({{"pattern", "crlf"}}).Json().at("matches").at(0).at("text"), "crlf .*");
  EXPECT_THAT(Paths(Grep({{"pattern", "PLAIN"}, {"ignore_case", true}})), ElementsAre("f"));
}

TEST_F(GuestSearch, Case33_RegexGrep) {
  Sh("printf 'a.b\\naxb\\na\\303\\251b\\na\\377b\\nab\\r\\n' > f; head -c 40 /dev/zero | tr '\\0' "
     "a > "
     "evil; echo ! >> evil");
  EXPECT_THAT(Lines(Grep({{"path", "f"}, {"pattern", "a.b"}, {"regex", true}})),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(Lines(Grep({{"path", "f"}, {"pattern", "a\\.b"}, {"regex", true}})), ElementsAre(1));
  EXPECT_THAT(
      Lines(Grep({{"path", "f"}, {"pattern", "B$"}, {"regex", true}, {"ignore_case", true}})),
      ElementsAre(1, 2, 3, 4, 5));
  auto before = NowMs();
  EXPECT_THAT(Paths(Grep({{"pattern", "(a+)+$"}, {"regex", true}})), ElementsAre());
  EXPECT_LT(NowMs() - before, 2000);
  auto refused = Grep({{"pattern", "x(?=y)"}, {"regex", true}});
  EXPECT_EQ(refused.Code(), "invalid_pattern");
  EXPECT_NE(refused.body.find("at byte 1"), std::string::npos) << refused.body;
  for (const char* pattern : {"", "(", "a{2000}", "\\n"}) {
    EXPECT_EQ(Grep({{"pattern", pattern}, {"regex", true}}).Code(), "invalid_pattern") << pattern;
  }
  EXPECT_EQ(Grep({{"pattern", ""}}).Code(), "invalid_pattern");
  EXPECT_EQ(Grep({{"pattern", "a\nb"}}).Code(), "invalid_pattern");
}

TEST_F(GuestSearch, ContextIsPrintedAsGrepDoes) {
  Sh("i=1; while [ $i -le 30 ]; do echo l$i; i=$((i+1)); done > a; cp a b; printf "
     "'x\\r\\nl8\\r\\ny' > "
     "c");
  // Touching and overlapping contexts are one run; the first and the last lines have less.
  for (const char* pattern : {"l[1347]$", "^l2", "l(1|30)$", "l", "l8", "l.5"}) {
    for (int before : {0, 1, 2, 40}) {
      for (int after : {0, 1, 3, 40}) {
        std::string command = "grep -nE -B " + std::to_string(before) + " -A " +
                              std::to_string(after) + " '" + pattern + "' a b";
        std::string expected = guest_->Shell(command).out;
        auto found = Grep({{"pattern", pattern},
                           {"regex", true},
                           {"before", before},
                           {"after", after},
                           {"glob", "[ab]"}});
        EXPECT_FALSE(found.Json().at("truncated").as_bool());
        std::string printed = Printed(found);
        if (before + after == 0) continue;  // grep prints no "--" then
        EXPECT_EQ(printed, expected) << command;
      }
    }
  }
  EXPECT_EQ(Printed(Grep({{"path", "c"}, {"pattern", "l8"}, {"before", 1}, {"after", 1}})),
            "c-1-x\nc:2:l8\nc-3-y\n");
  for (int wrong : {-1, 101}) {
    EXPECT_EQ(Grep({{"pattern", "x"}, {"before", wrong}}).Code(), "invalid_argument");
    EXPECT_EQ(Grep({{"pattern", "x"}, {"after", wrong}}).Code(), "invalid_argument");
  }
}

TEST_F(GuestSearch, ContextAndLimits) {
  Sh("printf 'hit 1\\na\\nb\\nhit 2\\nc\\nhit 3\\nd\\n' > f");
  auto grep = [&](json::object body) {
    body["pattern"] = "hit";
    body["before"] = 1;
    body["after"] = 1;
    return Grep(std::move(body));
  };
  // The match that is left out leaves its context out, but for what follows the one before it.
  auto limited = grep({{"limit", 1}});
  EXPECT_EQ(Printed(limited), "f:1:hit 1\nf-2-a\n");
  EXPECT_EQ(limited.Json().at("reason"), "limit");
  auto of_file = grep({{"limit_per_file", 2}});
  EXPECT_EQ(Printed(of_file), "f:1:hit 1\nf-2-a\nf-3-b\nf:4:hit 2\nf-5-c\n");
  EXPECT_FALSE(of_file.Json().at("truncated").as_bool());
  EXPECT_FALSE(grep({{"limit", 3}}).Json().at("truncated").as_bool());
  auto cut = grep({{"max_line_bytes", 3}, {"limit_per_file", 1}}).Json().at("matches");
  EXPECT_TRUE(cut.at(0).at("cut").as_bool());
  EXPECT_FALSE(cut.at(1).as_object().contains("cut"));
  EXPECT_TRUE(cut.at(1).at("context").as_bool());
}

TEST_F(GuestSearch, TheReplyHasALimit) {
  Sh("head -c 1000000 /dev/zero | tr '\\0' '\\001' > line; echo >> line; i=0; echo hit > f; while "
     "[ $i -lt "
     "60 ]; do cat line >> f; i=$((i+1)); done");
  for (bool context : {false, true}) {
    // Each byte is six as JSON.
    json::object body{{"path", "f"}, {"max_line_bytes", 1'000'000}};
    body["pattern"] = context ? "hit" : "\x01";
    if (context) body["after"] = 100;
    auto found = Grep(body);
    ASSERT_EQ(found.status, 200) << found.body.substr(0, 200);
    EXPECT_EQ(found.Json().at("reason"), "limit");
    EXPECT_GT(found.body.size(), 8U << 20);
    EXPECT_LT(found.body.size(), kMaxJsonBytes);
  }
}

TEST_F(GuestSearch, Case24_LineNumbersAreThoseOfRead) {
  Sh("printf 'a\\fb\\vc\\302\\205d\\342\\200\\250e\\r\\nold\\rmac\\n\\nneedle' > f");
  auto found = Grep({{"path", "f"}, {"pattern", "needle"}});
  EXPECT_THAT(Lines(found), ElementsAre(4));
  auto read = guest_->Call("GET", std::string(kPathFileLines) + "?path=f&newline=keep&offset=3");
  EXPECT_EQ(read.body, "needle");
  EXPECT_EQ(json::parse(read.headers.at("caisson-meta")).at("total_lines"), 4);
}

// What a piece of the file ends in, and lines over 4 MiB.
TEST_F(GuestSearch, Case33_LongLinesAndPieces) {
  Sh("i=0; while [ $i -lt 20000 ]; do echo line $i of a file that is read in several pieces; "
     "i=$((i+1)); done > f; { echo before; head -c 9000000 /dev/zero | tr '\\0' q; printf "
     "'tailend\\r\\nbehind\\nlast'; } > long");
  for (bool regex : {false, true}) {
    for (int context : {0, 2}) {
      auto found = Grep({{"path", "f"},
                         {"pattern", "9 of a"},
                         {"regex", regex},
                         {"before", context},
                         {"after", context},
                         {"limit", 10'000}});
      auto value = found.Json();
      size_t count = 0;
      int64_t last = 0;
      for (const auto& match : value.at("matches").as_array()) {
        int64_t line = match.at("line").as_int64();
        EXPECT_GT(line, last);
        last = line;
        // Line n holds n - 1.
        std::string start = "line " + std::to_string(line - 1) + " of";
        ASSERT_TRUE(std::string(match.at("text").as_string()).starts_with(start)) << found.body;
        if (!match.as_object().contains("context")) count++;
      }
      EXPECT_EQ(count, 2000U);
      EXPECT_EQ(value.at("matches").as_array().size(), context == 0 ? 2000U : 9998U);
    }
    for (const char* pattern : {"tailend", "qtail", "d\r"}) {
      auto found = Grep({{"path", "long"},
                         {"pattern", pattern},
                         {"regex", regex},
                         {"before", 1},
                         {"after", 2},
                         {"max_line_bytes", 5}});
      std::string expected =
          "long-1-befor\n"
          "long:2:qqqqq\n"
          "long-3-behin\n"
          "long-4-last\n";
      EXPECT_EQ(Printed(found), std::string_view(pattern) == "d\r" ? "" : expected) << pattern;
    }
    // The long line as context.
    EXPECT_EQ(Printed(Grep({{"path", "long"},
                            {"pattern", "be"},
                            {"regex", regex},
                            {"before", 1},
                            {"after", 1},
                            {"max_line_bytes", 5}})),
              "long:1:befor\nlong-2-qqqqq\nlong:3:behin\nlong-4-last\n");
  }
  auto lines = Grep({{"path", "long"}, {"pattern", "tailend$"}, {"regex", true}});
  EXPECT_THAT(Lines(lines), ElementsAre(2));
  EXPECT_EQ(lines.Json().at("matches").at(0).at("text").as_string().size(), 2000U);
}

TEST_F(GuestSearch, CarriageReturnsEndNoLineAndAreNoText) {
  Sh("printf 'one\\r\\ntwo\\rstill two\\n\\r\\nfour\\r' > f");
  EXPECT_THAT(Lines(Grep({{"pattern", "two"}})), ElementsAre(2));
  EXPECT_THAT(Lines(Grep({{"pattern", "\r"}})), ElementsAre(2));
  EXPECT_THAT(Lines(Grep({{"pattern", "e\r"}})), ElementsAre());
  EXPECT_THAT(Lines(Grep({{"pattern", "^$"}, {"regex", true}})), ElementsAre(3));
  EXPECT_THAT(Lines(Grep({{"pattern", "r$"}, {"regex", true}})), ElementsAre(4));
  EXPECT_THAT(Lines(Grep({{"pattern", "\\r"}, {"regex", true}})), ElementsAre(2));
  EXPECT_EQ(Grep({{"pattern", "one"}}).Json().at("matches").at(0).at("text"), "one");
}

TEST_F(GuestSearch, BinaryFilesAreCountedAndSkipped) {
  Sh("printf 'needle\\000' > early; { head -c 9000 /dev/zero | tr '\\0' x; printf "
     "'\\nneedle\\000end\\n'; "
     "} > late; : > empty; echo needle > text");
  for (bool regex : {false, true}) {
    auto found = Grep({{"pattern", "needle"}, {"regex", regex}});
    EXPECT_THAT(Paths(found), ElementsAre("late", "text"));
    EXPECT_EQ(found.Json().at("binary_skipped").as_int64(), 1);
    EXPECT_EQ(found.Json().at("files_searched").as_int64(), 3);
  }
}

TEST_F(GuestSearch, Case30_NamesThatAreNoText) {
  Sh("mkdir d; for n in 'a b' \"$(printf 'new\\nline')\" ./-rf \"q\\\"'\\$x\" "
     "\"$(printf '\\303\\251')\" \"$(printf 'e\\314\\201')\" \"$(printf '\\377.bin')\" "
     "$(head -c 255 /dev/zero | tr '\\0' n); do echo needle > \"d/$n\"; done");
  for (bool grep : {false, true}) {
    auto found = grep ? Grep({{"path", "d"}, {"pattern", "needle"}})
                      : Glob({{"path", "d"}, {"pattern", "*"}});
    EXPECT_THAT(Paths(found),
                ElementsAre("d/-rf", "d/a b", "d/e\u0301", "d/new\nline",
                            "d/" + std::string(255, 'n'), "d/q\"'$x", "d/é", "d/\uFFFD.bin"));
    auto last = found.Json().at("matches").at(7);
    EXPECT_EQ(last.at("path_base64"), "ZC//LmJpbg==");  // "d/\xff.bin"
  }
  json::object by_bytes{{"path", "d"}, {"pattern_base64", "/y4q"}};  // "\xff.*"
  auto found = guest_->Call("POST", kPathGlob, json::serialize(by_bytes));
  EXPECT_EQ(Paths(found).size(), 1U) << found.body;
  Sh("printf 'caf\\351 x\\n' > latin");
  json::object grep{{"path", "latin"}, {"pattern_base64", "6SB4"}};  // "\xe9 x"
  auto line = guest_->Call("POST", kPathGrep, json::serialize(grep)).Json().at("matches").at(0);
  EXPECT_EQ(line.at("text"), "caf\uFFFD x");
  EXPECT_EQ(line.at("text_base64"), "Y2Fm6SB4");
}

TEST_F(GuestSearch, Case32_LinkCyclesAreFinite) {
  Sh("mkdir a; echo needle > a/f; ln -s .. a/up; ln -s a a2; ln -s loop loop; ln -s . self");
  auto all = Glob({{"pattern", "**/*"}, {"directories", true}});
  EXPECT_THAT(Paths(all), ElementsAre("a", "a/f", "a/up", "a2", "loop", "self"));
  EXPECT_EQ(all.Json().at("unreadable").as_int64(), 0);
  EXPECT_THAT(Paths(Grep({{"pattern", "needle"}})), ElementsAre("a/f"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*"}, {"files_only", true}})), ElementsAre("a/f"));
  // A path that is a link is followed, as everywhere.
  EXPECT_THAT(Paths(Grep({{"path", "a2"}, {"pattern", "needle"}})), ElementsAre("a2/f"));
  EXPECT_THAT(Paths(Grep({{"path", "a2/f"}, {"pattern", "needle"}})), ElementsAre("a2/f"));
  // What lies outside is not reached with the other root.
  EXPECT_EQ(Grep({{"path", "a/up/.."}, {"root", "work_dir"}, {"pattern", "x"}}).Code(),
            "outside_root");
}

TEST_F(GuestSearch, PseudoFileSystemsAreNotEntered) {
  auto all = Glob({{"path", "/"}, {"pattern", "/{proc,sys,dev}/**"}, {"hidden", true}}).Json();
  EXPECT_EQ(all.at("matches").as_array().size(), 0U);
  EXPECT_THAT(Paths(Glob({{"path", "/"}, {"pattern", "/proc"}, {"directories", true}})),
              ElementsAre("/proc"));
  // Unless the path lies in them; their files have no size.
  auto status = Grep({{"path", "/proc/self/status"}, {"pattern", "Name:"}});
  EXPECT_THAT(Lines(status), ElementsAre(1));
  EXPECT_THAT(Paths(Grep({{"path", "/proc/sys/kernel"}, {"pattern", "Linux"}, {"glob", "ostype"}})),
              ElementsAre("/proc/sys/kernel/ostype"));
}

TEST_F(GuestSearch, Case28_WhatCannotBeReadIsCounted) {
  Sh("mkdir -p open closed; echo needle | tee open/f open/g closed/f; chmod 0 open/f closed; "
     "mkfifo "
     "open/pipe; ln -s nowhere open/dangling");
  auto found = Grep({{"pattern", "needle"}});
  EXPECT_THAT(Paths(found), ElementsAre("open/g"));
  EXPECT_EQ(found.Json().at("unreadable").as_int64(), 2);
  auto closed = Grep({{"path", "closed"}, {"pattern", "needle"}});
  EXPECT_EQ(closed.Code(), "file_access_denied");
  EXPECT_EQ(Grep({{"path", "open/pipe"}, {"pattern", "x"}}).Code(), "not_a_regular_file");
  EXPECT_EQ(Grep({{"path", "none"}, {"pattern", "x"}}).Code(), "file_not_found");
  EXPECT_EQ(Glob({{"path", "open/g"}, {"pattern", "x"}}).Code(), "not_a_directory");
}

TEST_F(GuestSearch, GlobForBothDeepAgentsLanguages) {
  Sh("mkdir -p a/b; touch top.txt a/x.txt a/b/y.txt; mkfifo pipe.txt; ln -s ../top.txt a/link.txt");
  Sh("ln -s nowhere dangling.txt; ln -s a directory.txt; ln -s /etc/passwd out.txt");
  json::object inside{{"pattern", "*.txt"}, {"files_only", true}, {"root", "work_dir"}};
  inside["path"] = ".";
  EXPECT_THAT(Paths(Glob(inside)), ElementsAre("a/b/y.txt", "a/link.txt", "a/x.txt", "top.txt"));
  Sh("rm out.txt");
  auto python = Glob({{"path", guest_->work_dir()}, {"pattern", "*.txt"}, {"files_only", true}});
  std::string base = guest_->work_dir();
  EXPECT_THAT(Paths(python), ElementsAre(base + "/a/b/y.txt", base + "/a/link.txt",
                                         base + "/a/x.txt", base + "/top.txt"));
  auto script = [&](const char* pattern) {
    return Paths(Glob({{"path", base},
                       {"pattern", pattern},
                       {"bare_any_depth", false},
                       {"directories", true},
                       {"files_only", true},
                       {"relative", true}}));
  };
  EXPECT_THAT(script("*.txt"), ElementsAre("top.txt"));
  EXPECT_THAT(script("*"), ElementsAre("a", "top.txt"));
  EXPECT_THAT(script("**/*.txt"), ElementsAre("a/b/y.txt", "a/link.txt", "a/x.txt", "top.txt"));
  Sh("echo needle > a/x.txt");
  EXPECT_THAT(Paths(Grep({{"path", base}, {"pattern", "needle"}, {"relative", true}})),
              ElementsAre("a/x.txt"));
  // The filter of grep is a glob like the others, and with `hidden` off dotfiles need their dot.
  Sh("echo needle > .dot.txt");
  json::object filtered{{"pattern", "needle"}, {"glob", "*.txt"}};
  EXPECT_THAT(Paths(Grep(filtered)), ElementsAre(".dot.txt", "a/x.txt"));
  filtered["hidden"] = false;
  EXPECT_THAT(Paths(Grep(filtered)), ElementsAre("a/x.txt"));
  filtered["glob"] = "/a/*";
  EXPECT_THAT(Paths(Grep(filtered)), ElementsAre("a/x.txt"));
}

TEST_F(GuestSearch, GrepLinesAndLimits) {
  Sh("i=0; while [ $i -lt 50 ]; do echo hit $i hit; echo other; i=$((i+1)); done > a.txt; cp a.txt "
     "b.log");
  auto found = Grep({{"pattern", "hit"}, {"limit_per_file", 2}, {"glob", "*.txt"}}).Json();
  ASSERT_EQ(found.at("matches").as_array().size(), 2U);
  EXPECT_EQ(found.at("matches").at(1).at("line").as_int64(), 3);
  EXPECT_FALSE(found.at("truncated").as_bool());
  auto limited = Grep({{"pattern", "hit"}, {"limit", 60}}).Json();
  EXPECT_EQ(limited.at("matches").as_array().size(), 60U);
  EXPECT_EQ(limited.at("reason"), "limit");
  EXPECT_EQ(Grep({{"pattern", "hit"}, {"limit", 100}}).Json().at("truncated"), false);
}

TEST_F(GuestSearch, Case34_SearchSeesWhatReadMay) {
  auto environ_files =
      Grep({{"path", "/proc/1"}, {"pattern", "CAISSON"}, {"glob", "environ"}}).Json();
  EXPECT_EQ(environ_files.at("matches").as_array().size(), 0U);
  auto root = Glob({{"path", "/"}, {"pattern", "proc/*/environ"}}).Json();
  EXPECT_EQ(root.at("matches").as_array().size(), 0U);
  EXPECT_EQ(Glob({{"pattern", "../../**"}}).Code(), "invalid_pattern");
  auto shadow = Grep({{"path", "/etc/shadow"}, {"pattern", "root"}});
  EXPECT_EQ(shadow.Code(), "file_access_denied");
}

TEST_F(GuestSearch, ASlowPatternEndsByItsDeadlineWithWhatWasFound) {
  Sh("echo abc > a; head -c 3000000 /dev/urandom | tr '\\000-\\177' a | tr -c a b > b");
  // As many states as the text has bytes.
  auto start = NowMs();
  auto late = guest_->Call(
      "POST", kPathGrep, R"({"path":".","pattern":"abc|a[ab]{900}c","regex":true})",
      {{"Caisson-Deadline-Ms", kMeasures ? "300" : "3000"}});  // a tenth is for the reply
  EXPECT_LT(NowMs() - start, 6000);
  ASSERT_EQ(late.status, 200) << late.body;
  EXPECT_THAT(Paths(late), ElementsAre("a"));
  if (kMeasures) EXPECT_EQ(late.Json().at("reason"), "deadline");
}

TEST_F(GuestSearch, GlobEndsByItsDeadline) {
  Sh("mkdir t; cd t; i=0; while [ $i -lt 40000 ]; do : > f$i; i=$((i+1)); done");
  std::string reason;
  for (int ms = 4; ms < 1000 && reason.empty(); ms *= 2) {
    auto late = guest_->Call("POST", kPathGlob, R"({"path":"t","pattern":"*none"})",
                             {{"Caisson-Deadline-Ms", std::to_string(ms)}});
    if (late.status != 200) {
      EXPECT_EQ(late.Code(), "deadline_exceeded");
    } else {
      auto value = late.Json();
      EXPECT_EQ(value.at("matches").as_array().size(), 0U);
      if (!value.at("truncated").as_bool()) break;  // a fast machine
      reason = std::string(value.at("reason").as_string());
    }
  }
  if (!reason.empty()) EXPECT_EQ(reason, "deadline");
}

TEST_F(GuestSearch, DeadlinesGiveWhatWasFound) {
  Sh("mkdir t; cd t; i=0; while [ $i -lt 60 ]; do head -c 5000000 /dev/zero | tr '\\0' 'x' > f$i; "
     "i=$((i+1)); done");
  auto late = guest_->Call("POST", kPathGrep, R"({"path":"t","pattern":"xxxxxxy","limit":10})",
                           {{"Caisson-Deadline-Ms", "30"}});
  if (late.status == 200) {
    EXPECT_EQ(late.Json().at("reason"), "deadline");
  } else {
    EXPECT_EQ(late.Code(), "deadline_exceeded");
  }
  EXPECT_EQ(
      guest_
          ->Call("POST", kPathGrep, R"({"path":"t","pattern":"q"})", {{"Caisson-Deadline-Ms", "0"}})
          .Code(),
      "invalid_argument");
}

}  // namespace
}  // namespace caisson::guest
