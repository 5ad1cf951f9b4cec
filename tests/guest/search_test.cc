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
  std::unique_ptr<GuestProcess> guest_;
};

TEST_F(GuestSearch, GlobContract) {
  Sh("mkdir -p a/b .h a-b; touch top.py a/x.py a/b/y.py a/b/z.txt .h/q.py .dot.py a-b/w.py");
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}})), ElementsAre("a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}, {"bare_any_depth", false}})), ElementsAre("top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "/*.py"}})), ElementsAre("top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "a/**"}})), ElementsAre("a/b/y.py", "a/b/z.txt", "a/x.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", "**/b/*.{py,txt}"}})), ElementsAre("a/b/y.py", "a/b/z.txt"));
  EXPECT_THAT(Paths(Glob({{"pattern", "*.py"}, {"hidden", true}})),
              ElementsAre(".dot.py", ".h/q.py", "a-b/w.py", "a/b/y.py", "a/x.py", "top.py"));
  EXPECT_THAT(Paths(Glob({{"pattern", ".*"}, {"directories", true}})), ElementsAre(".dot.py", ".h"));
  EXPECT_THAT(Paths(Glob({{"pattern", "a*"}, {"directories", true}})), ElementsAre("a", "a-b"));
  std::string absolute = guest_->work_dir();
  EXPECT_THAT(Paths(Glob({{"path", absolute}, {"pattern", "top*"}})), ElementsAre(absolute + "/top.py"));
  auto limited = Glob({{"pattern", "*.py"}, {"limit", 2}}).Json();
  EXPECT_EQ(limited.at("reason"), "limit");
  EXPECT_EQ(limited.at("matches").as_array().size(), 2U);
  EXPECT_EQ(Glob({{"pattern", "../**"}}).Code(), "invalid_pattern");
  EXPECT_EQ(Glob({{"pattern", "{a"}}).Code(), "invalid_pattern");
  EXPECT_EQ(Glob({{"pattern", "{1,2,3,4,5,6,7,8,9,0}{1,2,3,4,5,6,7,8,9,0}{1,2,3,4,5,6,7,8,9,0}{1,2}"}}).Code(), "invalid_pattern");
  EXPECT_EQ(Glob({{"path", "none"}, {"pattern", "*"}}).Code(), "file_not_found");
}

TEST_F(GuestSearch, Case28_And32_OddTrees) {
  Sh("mkdir -p a closed; touch a/f closed/x; chmod 0 closed; ln -s .. a/up; ln -s a a2; ln -s loop loop; ln -s nowhere dangling; mkfifo pipe; echo needle > a/f");
  auto found = Glob({{"pattern", "**/*"}});
  EXPECT_THAT(Paths(found), ElementsAre("a/f", "a/up", "a2", "dangling", "loop", "pipe"));
  EXPECT_EQ(found.Json().at("unreadable").as_int64(), 1);
  auto grep = Grep({{"pattern", "needle"}});
  EXPECT_THAT(Paths(grep), ElementsAre("a/f"));
  EXPECT_EQ(grep.Json().at("unreadable").as_int64(), 1);
}

TEST_F(GuestSearch, Case33_LiteralGrep) {
  Sh("printf '%s\\n' 'a.b*c[d](e)$^|\\' '-e' 'plain .* text' > f; printf 'a.b*c\\000' > bin; "
     "head -c 5000000 /dev/zero | tr '\\0' q > long; echo ' tail .*' >> long; printf 'crlf .*\\r\\n' > crlf");
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
  EXPECT_EQ(Grep({{"pattern", "x"}, {"regex", true}}).Code(), "not_supported");
  EXPECT_EQ(Grep({{"pattern", "x"}, {"before", 1}}).Code(), "not_supported");
}

TEST_F(GuestSearch, GrepLinesAndLimits) {
  Sh("i=0; while [ $i -lt 50 ]; do echo hit $i hit; echo other; i=$((i+1)); done > a.txt; cp a.txt b.log");
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
  auto environ_files = Grep({{"path", "/proc/1"}, {"pattern", "CAISSON"}, {"glob", "environ"}}).Json();
  EXPECT_EQ(environ_files.at("matches").as_array().size(), 0U);
  auto root = Glob({{"path", "/"}, {"pattern", "proc/*/environ"}}).Json();
  EXPECT_EQ(root.at("matches").as_array().size(), 0U);
  auto shadow = Grep({{"path", "/etc/shadow"}, {"pattern", "root"}});
  EXPECT_EQ(shadow.Code(), "file_access_denied");
}

TEST_F(GuestSearch, DeadlinesGiveWhatWasFound) {
  Sh("mkdir t; cd t; i=0; while [ $i -lt 60 ]; do head -c 5000000 /dev/zero | tr '\\0' 'x' > f$i; i=$((i+1)); done");
  auto late = guest_->Call("POST", kPathGrep, R"({"path":"t","pattern":"xxxxxxy","limit":10})", {{"Caisson-Deadline-Ms", "30"}});
  if (late.status == 200) {
    EXPECT_EQ(late.Json().at("reason"), "deadline");
  } else {
    EXPECT_EQ(late.Code(), "deadline_exceeded");
  }
  EXPECT_EQ(guest_->Call("POST", kPathGrep, R"({"path":"t","pattern":"q"})", {{"Caisson-Deadline-Ms", "0"}}).Code(), "invalid_argument");
}

}  // namespace
}  // namespace caisson::guest
