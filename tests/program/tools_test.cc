// The tools of Caisson's own agents, as a model calls them and reads their results.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "fake_model.h"
#include "server_fixture.h"

namespace caisson::program_test {
namespace {

class ToolsTest : public ServerTest {
 public:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    model_.emplace([this](int call, http::ServerRequest&, http::ServerResponse& response) {
      return call % 2 == 0 ? CallTool(response) : Say(response, "done");
    });
    session_ = MakeSession(model_->url());
  }
  void TearDown() override {
    ServerTest::TearDown();
    model_.reset();
  }

  // What comes of the model's call: the data of its event.
  json::object Use(std::string name, json::object arguments) {
    name_ = std::move(name);
    arguments_ = json::Serialize(arguments);
    Send(session_);
    json::object page =
        server_->Call("GET", "/v1/sessions/" + session_ + "/events?limit=1000").Json();
    json::object result;
    for (const json::value& event : page["items"].as_array()) {
      const json::object& one = event.as_object();
      std::string_view type = one.at("type").as_string();
      if (type == "tool.call.completed" || type == "tool.call.failed")
        result = one.at("data").as_object();
    }
    EXPECT_EQ(result["name"], json::value(name_));
    return result;
  }
  std::string Text(std::string name, json::object arguments) {
    return std::string(Use(std::move(name), std::move(arguments))["output"].as_string());
  }
  std::string Execute(std::string command) {
    return Text("execute", {{"command", std::move(command)}});
  }

 private:
  Task<Result<void>> CallTool(http::ServerResponse& response) {
    json::object call{{"index", 0},
                      {"id", fmt::format("call-{}", model_->calls())},
                      {"type", "function"},
                      {"function", {{"name", name_}, {"arguments", arguments_}}}};
    return response.Send(
        200, {{"Content-Type", "text/event-stream"}},
        Piece({{"tool_calls", json::array{std::move(call)}}}) + std::string(kAnswerEnd));
  }

  std::string name_;
  std::string arguments_;
  std::string session_;
  std::optional<FakeModel> model_;

 protected:
  const std::string& session() const { return session_; }
};

// Between two marks; empty when one is missing.
std::string Between(std::string_view text, std::string_view from, std::string_view to) {
  size_t begin = text.find(from);
  if (begin == text.npos) return {};
  begin += from.size();
  size_t end = text.find(to, begin);
  return end == text.npos ? std::string() : std::string(text.substr(begin, end - begin));
}

// grep.

TEST_F(ToolsTest, GrepFindsATextOrWhatARegularExpressionMatches) {
  Execute("printf 'a.c\\nabc\\nABC\\n' > one; printf 'xyz\\n' > two");
  EXPECT_EQ(Text("grep", {{"pattern", "a.c"}, {"output_mode", "content"}}), "one\n  1: a.c\n");
  EXPECT_EQ(Text("grep", {{"pattern", "a.c"}, {"regex", true}, {"output_mode", "content"}}),
            "one\n  1: a.c\n  2: abc\n");
  EXPECT_EQ(Text("grep", {{"pattern", "^(a.c|x)"}, {"regex", true}, {"ignore_case", true}}),
            "one\ntwo\n");
  EXPECT_EQ(Text("grep", {{"pattern", "abc"}, {"ignore_case", true}, {"output_mode", "count"}}),
            "one: 2\n");
  json::object wrong = Use("grep", {{"pattern", "(a"}, {"regex", true}});
  EXPECT_EQ(wrong["code"], "invalid_pattern");
  EXPECT_NE(wrong["output"].as_string().find("Error (invalid_pattern): "), std::string::npos);
}

TEST_F(ToolsTest, GrepShowsLinesAroundMatchesAsGrepDoes) {
  Execute("seq 20 > a; seq 3 > b");
  // Runs that touch are one; a `--` stands where lines of one file are left out.
  EXPECT_EQ(
      Text("grep", {{"pattern", "^(2|5|12)$"}, {"regex", true}, {"context", 1}}),
      "a\n  1- 1\n  2: 2\n  3- 3\n  4- 4\n  5: 5\n  6- 6\n  --\n  11- 11\n  12: 12\n  13- 13\n"
      "b\n  1- 1\n  2: 2\n  3- 3\n");
  // Lines around matches are no matches.
  EXPECT_EQ(Text("grep", {{"pattern", "12"}, {"context", 3}, {"output_mode", "count"}}), "a: 1\n");
  EXPECT_EQ(
      Text("grep", {{"pattern", "12"}, {"context", 3}, {"output_mode", "files_with_matches"}}),
      "a\n");
  // Without context nothing stands between matches.
  EXPECT_EQ(Text("grep", {{"pattern", "9"}, {"output_mode", "content"}}), "a\n  9: 9\n  19: 19\n");
  EXPECT_EQ(Use("grep", {{"pattern", "9"}, {"context", 101}})["code"], "invalid_argument");
}

// Output that is more than a model is shown.

TEST_F(ToolsTest, WhatExecuteLeavesOutCanBeRead) {
  std::string cut = Execute("seq -f %07.0f 20000; echo careful >&2; exit 3");
  EXPECT_NE(cut.find("[… 94472 bytes left out here; see the end …]"), std::string::npos);
  EXPECT_NE(cut.find("careful"), std::string::npos);
  EXPECT_NE(cut.find("[exit code 3]"), std::string::npos);
  std::string how = cut.substr(cut.rfind("\n[") + 2);
  EXPECT_TRUE(how.starts_with("94472 bytes of stdout left out; read_output with exec_id \""))
      << how;
  std::string exec = Between(how, "exec_id \"", "\"");
  EXPECT_EQ(Between(how, "offset ", " "), "49152");
  EXPECT_TRUE(how.ends_with("reads them]")) << how;

  // From there on, page by page, everything is seen once.
  std::string all = cut.substr(0, 49152);
  std::string offset = "49152";
  int pages = 0;
  while (!offset.empty()) {
    std::string page = Text("read_output", {{"exec_id", exec},
                                            {"stream", "stdout"},
                                            {"offset", std::stoll(offset)},
                                            {"limit", 40'000}});
    size_t note = page.rfind("[bytes ");
    offset = Between(page.substr(note), "go on with offset ", "]");
    all += page.substr(0, note);
    pages++;
  }
  EXPECT_EQ(pages, 3);
  std::string wanted;
  for (int i = 1; i <= 20'000; i++) wanted += fmt::format("{:07}\n", i);
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(Text("read_output", {{"exec_id", exec}, {"stream", "stderr"}}),
            "careful\n[bytes 0 to 8 of 8]");
}

TEST_F(ToolsTest, ASandboxMayBoundCommandsBelowWhatIsUsual) {
  Server::Answer made =
      server_->Call("POST", "/v1/sandboxes",
                    fmt::format(R"({{"session_id":"{}","max_exec_ms":2000}})", session()));
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_NE(Execute("echo works").find("works\n[exit code 0]"), std::string::npos);
  EXPECT_NE(Execute("sleep 300").find("[no exit code: timeout"), std::string::npos);
  // What the model asks for itself is refused by name.
  json::object over = Use("execute", {{"command", "true"}, {"timeout", 60}});
  EXPECT_NE(over["output"].as_string().find("max_exec_ms is 2000"), std::string::npos);
}

TEST_F(ToolsTest, WhatIsShownWholeNeedsNoMore) {
  EXPECT_EQ(Execute("echo out"), "out\n[exit code 0]");
  EXPECT_EQ(Execute("head -c 65536 /dev/zero | tr '\\0' x").find("left out"), std::string::npos);
}

TEST_F(ToolsTest, EachStreamSaysWhatIsMissingOfIt) {
  std::string cut = Execute(
      "head -c 60000 /dev/zero | tr '\\0' o; sleep 0.3; "
      "head -c 40000 /dev/zero | tr '\\0' e >&2");
  EXPECT_NE(cut.find("\n[10848 bytes of stdout left out; "), std::string::npos);
  EXPECT_NE(cut.find("\n[23616 bytes of stderr left out; "), std::string::npos);
  EXPECT_NE(cut.find("stream \"stderr\", offset 0 reads them]"), std::string::npos);
}

TEST_F(ToolsTest, OnlySoMuchIsKeptAndThatIsSaid) {
  std::string cut = Execute("head -c 3000000 /dev/zero | tr '\\0' x");
  EXPECT_TRUE(cut.ends_with("reads them up to byte 1048576; the rest is not kept]"));
  std::string exec = Between(cut, "exec_id \"", "\"");
  std::string last = Text("read_output", {{"exec_id", exec}, {"offset", 1048570}});
  EXPECT_EQ(last, "xxxxxx\n[bytes 1048570 to 1048576 of 3000000; the rest is not kept]");
  EXPECT_EQ(Use("read_output", {{"exec_id", exec}, {"offset", 1048577}})["code"],
            "offset_past_end");
  EXPECT_EQ(Use("read_output", {{"exec_id", "exec-999"}})["code"], "exec_not_found");
  EXPECT_EQ(Use("read_output", {{"exec_id", "../hello?"}})["code"], "exec_not_found");
  EXPECT_EQ(Use("read_output", {})["code"], "invalid_argument");
}

TEST_F(ToolsTest, APageEndsBehindAWholeCharacter) {
  std::string cut = Execute("for i in $(seq 30000); do printf '€€'; done");
  std::string exec = Between(cut, "exec_id \"", "\"");
  EXPECT_EQ(Text("read_output", {{"exec_id", exec}, {"offset", 3}, {"limit", 8}}),
            "€€\n[bytes 3 to 9 of 180000; go on with offset 9]");
  // One that is larger than the page is shown as what it is not, but the reader gets on.
  EXPECT_NE(Text("read_output", {{"exec_id", exec}, {"offset", 3}, {"limit", 1}})
                .find("go on with offset 4]"),
            std::string::npos);
}

// Keeping output needs a file; a command that makes room must not need one.
TEST_F(ToolsTest, CommandsRunWhereNoFileCanBeMade) {
  Server::Answer made =
      server_->Call("POST", "/v1/sandboxes",
                    json::Serialize(json::object{{"session_id", session()},
                                                 {"resources", {{"disk_bytes", 4 << 20}}}}));
  ASSERT_EQ(made.status, 201) << made.body;
  Execute("i=0; while : > f$i; do i=$((i+1)); done 2>/dev/null");
  std::string cut = Execute("head -c 100000 /dev/zero | tr '\\0' x");
  EXPECT_TRUE(cut.ends_with("[exit code 0]\n[34464 bytes of stdout left out; they are not kept]"))
      << cut.substr(cut.size() - 200);
  EXPECT_TRUE(Execute("rm -f f*").ends_with("[exit code 0]"));
  EXPECT_NE(Execute("head -c 100000 /dev/zero | tr '\\0' x").find("read_output with exec_id"),
            std::string::npos);
}

}  // namespace
}  // namespace caisson::program_test
