// Watching files over HTTP: what is told, and what a client that leaves leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "streaming_fixture.h"

namespace caisson::program_test {
namespace {

using ::testing::HasSubstr;

class WatchTest : public StreamingTest {
 public:
  void SetUp() override {
    StreamingTest::SetUp();
    if (!IsSkipped()) box_ = "/v1/sandboxes/" + MakeSandbox();
  }
  std::string Watch(const std::string& query) { return box_ + "/files/watch?" + query; }
  // The workers that watch in the sandbox; the first process sees them all.
  std::string Workers() {
    return Exec(box_.substr(14), "cat /proc/[0-9]*/comm | grep -c caisson-work").Text("stdout");
  }

  std::string box_;
};

TEST_F(WatchTest, ChangesAreToldUntilTheDirectoryGoes) {
  server_->Call("POST", box_ + "/files/mkdir", R"({"path":"d"})");
  auto text = Run([](WatchTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(Opened opened, co_await test.Open("GET", test.Watch("path=d&recursive=1")));
    EXPECT_EQ(opened.head.headers.Find("content-type"), "text/event-stream");
    CAISSON_CO_ASSIGN(std::string told,
                      co_await test.ReadUntil(*opened.client, "event: watching\n", test.Soon()));
    test.Exec(test.box_.substr(14), "mkdir d/sub; echo x > d/sub/f");
    CAISSON_CO_ASSIGN(std::string more,
                      co_await test.ReadUntil(*opened.client, "d/sub/f", test.Soon()));
    test.server_->Call("POST", test.box_ + "/files/remove", R"({"path":"d","recursive":true})");
    CAISSON_CO_ASSIGN(std::string end,
                      co_await test.ReadUntil(*opened.client, "event: end\n", test.Soon()));
    co_return told + more + end;
  }(*this));
  ASSERT_TRUE(text.has_value()) << text.error().ToString();
  EXPECT_THAT(*text, HasSubstr(R"({"path":"d/sub/f","kind":"created","directory":false})"));
  EXPECT_THAT(*text, HasSubstr("event: changes\ndata: {\"changes\":["));
}

TEST_F(WatchTest, AClientThatLeavesLeavesNothing) {
  auto left = Run([](WatchTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(Opened opened, co_await test.Open("GET", test.Watch("path=.")));
    auto watching = co_await test.ReadUntil(*opened.client, "event: watching\n", test.Soon());
    EXPECT_EQ(test.Workers(), "1\n");
    co_return watching;
  }(*this));
  ASSERT_TRUE(left.has_value()) << left.error().ToString();
  EXPECT_TRUE(Eventually([&] { return Workers() == "0\n"; }));
  // A watch does not keep its sandbox: this one ends under it.
  auto ended = Run([](WatchTest& test) -> Task<Result<std::string>> {
    CAISSON_CO_ASSIGN(Opened opened, co_await test.Open("GET", test.Watch("path=.")));
    CAISSON_CO_TRY(co_await test.ReadUntil(*opened.client, "event: watching\n", test.Soon()));
    EXPECT_EQ(test.server_->Call("DELETE", test.box_).Text("status"), "released");
    co_return co_await test.ReadUntil(*opened.client, "event: end\n", test.Soon());
  }(*this));
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().code, ErrorCode::kConnectionLost) << ended.error().ToString();
}

TEST_F(WatchTest, WrongRequestsAreNamed) {
  EXPECT_EQ(server_->Call("GET", Watch("path=none")).Text("code"), "file_not_found");
  EXPECT_EQ(server_->Call("GET", Watch("path=/etc/passwd")).Text("code"), "not_a_directory");
  EXPECT_EQ(server_->Call("GET", Watch("path=..&root=work_dir")).Text("code"), "outside_root");
  EXPECT_EQ(server_->Call("GET", Watch("path=.&depth=2")).Text("code"), "invalid_argument");
  EXPECT_EQ(server_->Call("GET", Watch("")).Text("code"), "invalid_argument");
}

}  // namespace
}  // namespace caisson::program_test
