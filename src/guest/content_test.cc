// The pure parts of commands, files and search: hashes, kept output, patterns, line windows, edits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>

#include "guest/config.h"
#include "guest/diff.h"
#include "guest/exec_manager.h"
#include "guest/file_content.h"
#include "guest/glob.h"
#include "guest/json.h"
#include "guest/lines.h"
#include "guest/media_type.h"
#include "guest/output.h"
#include "guest/paths.h"
#include "guest/records.h"
#include "guest/sha256.h"
#include "guest/signals.h"

namespace caisson::guest {
namespace {

TEST(Sha256Test, KnownVectors) {
  EXPECT_EQ(Sha256::Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256::Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256::Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256::Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t cut = 0; cut < 200; cut++) {
    std::string text(200, 'q');
    Sha256 hash;
    hash.Update(std::string_view(text).substr(0, cut));
    hash.Update(std::string_view(text).substr(cut));
    EXPECT_EQ(hash.HexDigest(), Sha256::Hex(text));
  }
  std::string text;
  for (int i = 0; i < 500; i++) {
    text += static_cast<char>(i * 37 + i / 7);
    Sha256 portable(true);
    portable.Update(text);
    EXPECT_EQ(portable.HexDigest(), Sha256::Hex(text));
  }
}

TEST(MediaTypeTest, TextIsToldByItsBytesAndNamedByItsExtension) {
  auto guess = [](std::string_view name, std::string_view head, bool whole = true) {
    MediaType type = GuessMediaType(name, head, whole);
    return std::string(type.name) + (type.is_text ? " text" : "");
  };
  EXPECT_EQ(guess("notes", "hello"), "text/plain text");
  EXPECT_EQ(guess("empty.bin", ""), "text/plain text");
  EXPECT_EQ(guess("A.MD", "# t"), "text/markdown text");
  EXPECT_EQ(guess(".json", "{}"), "text/plain text");  // a name, not an extension
  EXPECT_EQ(guess("a.json", "{}"), "application/json text");
  EXPECT_EQ(guess("a.pdf", "%PDF-1.7"), "application/pdf text");
  // The content decides, whatever the name says.
  EXPECT_EQ(guess("a.json", std::string_view("{\0}", 3)), "application/octet-stream");
  EXPECT_EQ(guess("a.txt", "\x89PNG\r\n\x1a\n\0\0"), "image/png");
  EXPECT_EQ(guess("latin.txt", "caf\xe9"), "application/octet-stream");
  EXPECT_EQ(guess("a.png", "plain words"), "text/plain text");
  // Containers, and kinds of zip.
  EXPECT_EQ(guess("x", std::string_view("RIFF\0\0\0\0WEBP", 12)), "image/webp");
  EXPECT_EQ(guess("x", std::string_view("\0\0\0\x18"
                                        "ftypisom",
                                        12)),
            "video/mp4");
  EXPECT_EQ(guess("x.docx", "PK\x03\x04\xff"),
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document");
  EXPECT_EQ(guess("x", "PK\x03\x04\xff"), "application/zip");
  // A character that the end of the head cuts is no bad one; one that the end of the file cuts is.
  for (std::string_view cut : {"\xc3", "\xe2\x82", "\xf0\x9f\x98"}) {
    std::string head = "text " + std::string(cut);
    EXPECT_EQ(guess("x", head, false), "text/plain text");
    EXPECT_EQ(guess("x", head, true), "application/octet-stream");
  }
  EXPECT_EQ(guess("x", std::string(8192, '\x80'), false), "application/octet-stream");
}

class Feeder {
 public:
  Feeder() { EXPECT_EQ(::pipe(fds_), 0); }
  ~Feeder() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  void Put(OutputLog& log, RecordType type, const std::string& text) {
    size_t at = 0;
    while (at < text.size()) {
      size_t piece = std::min<size_t>(text.size() - at, 4096);
      ASSERT_EQ(::write(fds_[1], text.data() + at, piece), static_cast<ssize_t>(piece));
      for (size_t left = piece; left > 0;) {
        long got = log.TakeFrom(fds_[0], type, left);
        ASSERT_GT(got, 0);
        left -= static_cast<size_t>(got);
      }
      at += piece;
    }
  }

 private:
  int fds_[2];
};

std::string ReadBack(const OutputLog& log, uint64_t from, std::string* gaps = nullptr) {
  std::string out;
  for (;;) {
    OutputLog::Step step = log.Next(from, 64 * 1024);
    using Kind = OutputLog::Step::Kind;
    if (step.kind == Kind::kNothing) return out;
    if (step.kind == Kind::kData) {
      out += step.piece.bytes;
      from += step.piece.bytes.size();
    } else {
      if (gaps != nullptr) *gaps += step.kind == Kind::kGapLimit ? "L" : "N";
      from += step.skipped;
    }
  }
}

TEST(OutputTest, KeepsTheEnd) {
  Feeder feeder;
  OutputLog log(UINT64_MAX, 0);
  std::string all;
  for (int i = 0; i < 1000; i++) {
    std::string piece = std::to_string(i) + std::string(997, static_cast<char>('a' + i % 26));
    feeder.Put(log, i % 3 == 0 ? RecordType::kStderr : RecordType::kStdout, piece);
    all += piece;
  }
  EXPECT_EQ(log.total(), all.size());
  EXPECT_EQ(log.first_kept(), all.size() - kReplayBytes);
  std::string gaps;
  EXPECT_EQ(ReadBack(log, 0, &gaps), all.substr(all.size() - kReplayBytes));
  EXPECT_EQ(gaps, "N");
  EXPECT_EQ(ReadBack(log, all.size() - 10), all.substr(all.size() - 10));
  EXPECT_EQ(log.Room(all.size() - kReplayBytes), 0U);
  EXPECT_EQ(log.Room(all.size() - kReplayBytes + 5), 5U);
  EXPECT_EQ(log.Room(OutputLog::kNoReader), kMaxRecordBytes);
}

TEST(OutputTest, HeadAndTail) {
  for (size_t tail : {0U, 1U, 10U, 5000U}) {
    Feeder feeder;
    OutputLog log(100, tail);
    std::string all;
    for (int i = 0; i < 300; i++) all += std::to_string(i) + ",";
    feeder.Put(log, RecordType::kStdout, all);
    EXPECT_TRUE(log.over_limit());
    EXPECT_EQ(ReadBack(log, 0), all.substr(0, 100));  // the tail waits for the end
    log.Finish();
    std::string gaps;
    size_t kept = std::min(tail, all.size() - 100);
    EXPECT_EQ(ReadBack(log, 0, &gaps), all.substr(0, 100) + all.substr(all.size() - kept));
    EXPECT_EQ(gaps, kept == all.size() - 100 ? "" : "L");
    EXPECT_EQ(log.skipped(RecordType::kStdout), all.size() - 100 - kept);
    EXPECT_EQ(log.skipped(RecordType::kStderr), 0U);
  }
}

TEST(RecordTest, Layout) {
  std::string out;
  AppendRecord(out, RecordType::kStderr, 0x0102030405060708, "abc");
  EXPECT_EQ(out, std::string("\x03\0\0\0\x03\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01"
                             "abc",
                             19));
}

TEST(GlobTest, Names) {
  struct Row {
    const char* pattern;
    const char* name;
    bool matches;
  };
  for (const Row& row :
       {Row{"*", "abc", true},       {"*", ".abc", false},   {".*", ".abc", true},
        {"a*c", "abbc", true},       {"a*c", "abcd", false}, {"a?c", "aéc", true},
        {"a?c", "ac", false},        {"[abc]x", "bx", true}, {"[!a]x", "bx", true},
        {"[^a]x", "ax", false},      {"[a-c]", "b", true},   {"[a-]", "-", true},
        {"[]a]", "]", true},         {"[!]]", "]", false},   {"[é-ü]", "ö", true},
        {"[ab", "[ab", true},        {"!x", "!x", true},     {"*a*b*c*", "xaxbxcx", true},
        {"**", "ab", true},          {"a", "b", false},      {"?", "\xff", true},
        {"*.bin", "\xff.bin", true}, {"-*", "-rf", true}}) {
    EXPECT_EQ(MatchName(row.pattern, row.name, false), row.matches)
        << row.pattern << " " << row.name;
  }
  EXPECT_TRUE(MatchName("*", ".abc", true));
  std::string stars;
  for (int i = 0; i < 100; i++) stars += "a*";
  EXPECT_FALSE(MatchName(stars + "b", std::string(2000, 'a'), false));  // and at once
}

TEST(GlobTest, Paths) {
  auto matches = [](const char* pattern, const char* path, GlobOptions options = {}) {
    auto glob = Glob::Compile(pattern, options);
    return glob.has_value() && glob->Matches(path);
  };
  EXPECT_TRUE(matches("*.py", "a/b/c.py"));
  EXPECT_FALSE(matches("*.py", "a/b/c.py", {.bare_any_depth = false}));
  EXPECT_FALSE(matches("*.py", ".venv/c.py"));
  EXPECT_TRUE(matches("*.py", ".venv/c.py", {.hidden = true}));
  EXPECT_TRUE(matches("*.py", "a/.venv/c.py", {.bare_dot_directories = true}));
  EXPECT_FALSE(matches("*.py", ".venv/.c.py", {.bare_dot_directories = true}));
  EXPECT_FALSE(matches("**/*.py", ".venv/c.py", {.bare_dot_directories = true}));
  EXPECT_TRUE(matches("/a/*.py", "a/x.py"));
  EXPECT_FALSE(matches("/*.py", "a/x.py"));
  EXPECT_TRUE(matches("**/x", "x"));
  EXPECT_TRUE(matches("a/**/x", "a/x"));
  EXPECT_TRUE(matches("a/**/x", "a/b/c/x"));
  EXPECT_FALSE(matches("a/**/x", "b/x"));
  EXPECT_TRUE(matches("a/**", "a/b/c"));
  EXPECT_FALSE(matches("a/**", "a"));
  EXPECT_TRUE(matches("{a,b/{c,d}}/*.{x,y}", "b/d/f.y"));
  EXPECT_TRUE(matches("x{,.bak}", "x"));
  EXPECT_TRUE(matches("[{]a", "{a"));
  for (const char* bad : {"", "..", "a/../b", "{a", "{a,{b}"}) {
    EXPECT_FALSE(Glob::Compile(bad, {}).has_value()) << bad;
  }
  EXPECT_FALSE(Glob::Compile("{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}{0,1}", {}).has_value());
  std::string deep;
  for (int i = 0; i < 50; i++) deep += "**/a/";
  auto glob = Glob::Compile(deep + "b", {});
  std::string path;
  for (int i = 0; i < 500; i++) path += "a/";
  EXPECT_FALSE(glob->Matches(path + "c"));
}

TEST(LinesTest, Windows) {
  auto read = [](std::string_view text, LineWindowRequest request = {}) {
    return ReadLineWindow(text, request);
  };
  EXPECT_EQ(read("a\nb\n")->total_lines, 2);
  EXPECT_EQ(read("a\nb")->total_lines, 2);
  EXPECT_EQ(read("\n")->total_lines, 1);
  EXPECT_EQ(read("")->total_lines, 0);
  EXPECT_EQ(read("a\rb\r\nc")->text, "a\nb\nc");
  EXPECT_EQ(read("a\rb\r\nc", {.keep_newlines = true})->text, "a\rb\r\nc");
  auto window = read("a\nb\nc\nd", {.offset = 1, .limit = 2});
  EXPECT_EQ(window->text, "b\nc");
  EXPECT_EQ(window->start_line, 2);
  EXPECT_EQ(window->end_line, 3);
  EXPECT_EQ(window->next_offset, 3);
  EXPECT_EQ(read("a\nb", {.offset = 2}).error().code, ErrorCode::kOffsetPastEnd);
  EXPECT_EQ(read("", {.offset = 1}).error().code, ErrorCode::kOffsetPastEnd);
  EXPECT_EQ(read(std::string_view("a\0b", 3)).error().code, ErrorCode::kNotText);
  EXPECT_EQ(read("\xff").error().code, ErrorCode::kNotText);
  auto bytes = read("aaa\nbbb\nccc", {.max_bytes = 7});
  EXPECT_EQ(bytes->text, "aaa\nbbb");
  EXPECT_EQ(bytes->next_offset, 2);
  EXPECT_FALSE(bytes->cut);
  auto cut = read("ééé\nb", {.max_bytes = 5});
  EXPECT_EQ(cut->text, "éé");
  EXPECT_TRUE(cut->cut);
  EXPECT_EQ(cut->next_offset, 1);
  EXPECT_EQ(read("ééé\nb", {.max_line_bytes = 3})->text, "é\nb");
}

TEST(EditTest, Rules) {
  auto edit = [](std::string_view text, EditRequest request) { return ReplaceText(text, request); };
  EXPECT_EQ(edit("aXb", {.old_text = "X", .new_text = "$&\\0"})->content, "a$&\\0b");
  EXPECT_EQ(edit("aaa", {.old_text = "aa", .new_text = "b"})->content, "ba");
  EXPECT_EQ(edit("aXbX", {.old_text = "X", .new_text = ""}).error().code,
            ErrorCode::kMultipleOccurrences);
  EXPECT_EQ(edit("aXbX", {.old_text = "X", .new_text = "", .replace_all = true})->content, "ab");
  EXPECT_EQ(edit("aXbX", {.old_text = "X", .new_text = "", .expected_count = 2})->count, 2);
  EXPECT_EQ(edit("a", {.old_text = "", .new_text = "b"}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(edit("a\r\nb", {.old_text = "a\nb", .new_text = "x\ny"})->content, "x\r\ny");
  EXPECT_EQ(edit("a\nb", {.old_text = "a\r\nb", .new_text = "x\r\ny"})->content, "x\ny");
  EXPECT_EQ(
      edit("a\r\nb", {.old_text = "a\nb", .new_text = "x", .adapt_newlines = false}).error().code,
      ErrorCode::kStringNotFound);
}

TEST(RangeTest, Forms) {
  EXPECT_EQ(ParseRange("bytes=2-3", 10)->length, 2U);
  EXPECT_EQ(ParseRange("bytes=-3", 10)->first, 7U);
  EXPECT_EQ(ParseRange("bytes=-30", 10)->first, 0U);
  for (const char* bad : {"bytes=", "bytes=-", "bytes=a-b", "bytes=10-11", "bytes=1-0",
                          "bytes=0-1,2-3", "bytes=-0", "x=0-1"}) {
    EXPECT_FALSE(ParseRange(bad, 10).has_value()) << bad;
  }
  EXPECT_FALSE(ParseRange("bytes=0-", 0).has_value());
}

TEST(PathsTest, Shapes) {
  EXPECT_EQ(JoinPath("/", "a"), "/a");
  EXPECT_EQ(JoinPath(".", "a"), "a");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(LastComponent("/a/b/"), "b");
  EXPECT_EQ(LastComponent("/"), "/");
  EXPECT_FALSE(CheckPath({"/a", PathRoot::kWorkDir}).has_value());
  EXPECT_FALSE(CheckPath({std::string(4096, '/'), PathRoot::kSandbox}).has_value());
  EXPECT_TRUE(CheckPath({std::string(255, 'a'), PathRoot::kSandbox}).has_value());
  EXPECT_FALSE(CheckPath({std::string(256, 'a'), PathRoot::kSandbox}).has_value());
}

TEST(ConfigTest, Parse) {
  Config config;
  EXPECT_TRUE(
      ParseConfig(
          R"({"user":{"uid":1000,"gid":1000,"name":"u","home":"/h","groups":[4,5]},"work_dir":"/w","env":{"A":"b"}})",
          config)
          .has_value());
  EXPECT_EQ(config.user.groups.size(), 2U);
  for (const char* bad : {"{}", R"({"user":{},"work_dir":"/w"})",
                          R"({"user":{"uid":-1,"gid":0,"name":"u","home":"/"},"work_dir":"/w"})",
                          R"({"user":{"uid":1,"gid":1,"name":"u","home":"/"},"work_dir":"w"})"}) {
    Config other;
    EXPECT_FALSE(ParseConfig(bad, other).has_value()) << bad;
  }
}

// Applies hunks as patch(1) does, and checks what they say of the old text.
std::string Apply(std::string_view old_text, std::string_view diff) {
  std::vector<std::string> lines;
  for (std::string_view rest = old_text; !rest.empty();) {
    size_t size = std::min(rest.find('\n'), rest.size() - 1) + 1;
    lines.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  std::string result;
  size_t at = 0;        // of the old text's lines
  size_t new_line = 0;  // given out so far
  std::string pending;  // the line before a possible remark
  char mark = 0;
  auto settle = [&] {
    if (mark == ' ' || mark == '-') {
      EXPECT_LT(at, lines.size());
      if (at < lines.size()) EXPECT_EQ(lines[at++], pending);
    }
    if (mark == ' ' || mark == '+') {
      result += pending;
      new_line++;
    }
    mark = 0;
  };
  for (std::string_view rest = diff; !rest.empty();) {
    size_t size = rest.find('\n') + 1;
    std::string_view line = rest.substr(0, size);
    rest.remove_prefix(size);
    if (line.starts_with("\\")) {
      pending.pop_back();
      continue;
    }
    settle();
    if (!line.starts_with("@@")) {
      mark = line[0];
      pending = line.substr(1);
      continue;
    }
    size_t old_start = 0, old_count = 1, new_start = 0, new_count = 1;
    std::string head(line);
    size_t plus = head.find('+');
    if (sscanf(head.c_str(), "@@ -%zu,%zu", &old_start, &old_count) < 1) ADD_FAILURE() << head;
    if (sscanf(head.c_str() + plus, "+%zu,%zu", &new_start, &new_count) < 1) ADD_FAILURE() << head;
    size_t begin = old_count == 0 ? old_start : old_start - 1;
    for (; at < begin; at++, new_line++) result += lines[at];
    EXPECT_EQ(new_line, new_count == 0 ? new_start : new_start - 1) << head;
  }
  settle();
  for (; at < lines.size(); at++) result += lines[at];
  return result;
}

TEST(DiffTest, ReadsAsUsual) {
  EditResult edited =
      *ReplaceText("1\n2\n3\n4\n5\n6\n7\n8\n9\n", {.old_text = "5\n6", .new_text = "x"});
  Diff diff = UnifiedDiff("1\n2\n3\n4\n5\n6\n7\n8\n9\n", edited.content, edited.spans, 1000);
  EXPECT_EQ(diff.text, "@@ -2,8 +2,7 @@\n 2\n 3\n 4\n-5\n-6\n+x\n 7\n 8\n 9\n");
  EXPECT_FALSE(diff.cut);
  edited = *ReplaceText("only", {.old_text = "only", .new_text = ""});
  diff = UnifiedDiff("only", edited.content, edited.spans, 1000);
  EXPECT_EQ(diff.text, "@@ -1 +0,0 @@\n-only\n\\ No newline at end of file\n");
  diff = UnifiedDiff("only", edited.content, edited.spans, 10);
  EXPECT_TRUE(diff.cut && diff.text.empty());
}

TEST(DiffTest, GivesTheNewTextFromTheOld) {
  std::mt19937 random(7);
  const std::string pieces[] = {"a", "b", "\n", "a\n", "\n\n", "ab", "x", ""};
  auto text = [&](size_t length) {
    std::string made;
    while (length-- > 0) made += pieces[random() % std::size(pieces)];
    return made;
  };
  int changed = 0;
  for (int round = 0; round < 20'000; round++) {
    std::string old_text = text(random() % 40);
    EditRequest edit{
        .old_text = text(1 + random() % 3), .new_text = text(random() % 3), .replace_all = true};
    auto edited = ReplaceText(old_text, edit);
    if (!edited) continue;
    changed++;
    Diff diff = UnifiedDiff(old_text, edited->content, edited->spans, SIZE_MAX);
    ASSERT_EQ(Apply(old_text, diff.text), edited->content)
        << testing::PrintToString(old_text) << testing::PrintToString(edit.old_text)
        << testing::PrintToString(edit.new_text) << diff.text;
  }
  EXPECT_GT(changed, 1000);
}

TEST(ExecSpecTest, Validation) {
  Config config;
  config.work_dir = "/w";
  auto parse = [&](const char* text) { return ParseExecSpec(*Json::Parse(text), config, 7); };
  EXPECT_EQ(parse(R"({"command":"x"})")->id, "exec-7");
  EXPECT_EQ(parse(R"({"command":"x"})")->cwd, "/w");
  EXPECT_EQ(parse(R"({"argv":["a",""]})")->argv.size(), 2U);
  EXPECT_EQ(parse(R"({"argv_base64":["/w=="]})")->argv[0], "\xff");
  for (const char* bad :
       {R"({})", R"({"command":"x","argv":["y"]})", R"({"argv":[1]})", R"({"argv":[""]})",
        R"({"command":"a\u0000b"})", R"({"command":"x","id":"A"})",
        R"({"command":"x","timeout_ms":-1})", R"({"command":"x","tail_bytes":2000000})",
        R"({"command":"x","stdin":"file"})", R"({"command":"x","pty":{"rows":0,"cols":1}})",
        R"({"command":"x","env":{"a":1}})", R"({"command":"x","env":["a"]})",
        R"({"command":"x","background":"yes"})", R"({"command":"x","umask":"8"})",
        R"({"command":"x","umask":"01777"})", R"({"argv":["x"],"login":true})"}) {
    EXPECT_FALSE(parse(bad).has_value()) << bad;
  }
}

TEST(SignalsTest, Names) {
  EXPECT_EQ(SignalName(9), "KILL");
  EXPECT_EQ(SignalNumber("SIGTERM"), 15);
  EXPECT_EQ(SignalNumber("NOPE"), 0);
}

}  // namespace
}  // namespace caisson::guest
