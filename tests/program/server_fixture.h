// A server with nothing in it; what it leaves on the host is a failure.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <string>

#include "host_census.h"
#include "program.h"

namespace caisson::program_test {

class ServerTest : public ::testing::Test {
 public:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    before_ = HostCensus();
    server_ = std::make_unique<Server>();
    server_->Start();
    ASSERT_FALSE(server_->url().empty());
  }
  void TearDown() override {
    if (IsSkipped()) return;
    server_.reset();
    EXPECT_EQ(LeftBehind(before_), std::set<std::string>());
  }
  std::string MakeSandbox() {
    Server::Answer made = server_->Call("POST", "/v1/sandboxes", "{}");
    EXPECT_EQ(made.status, 201) << made.body;
    return made.Text("id");
  }
  Server::Answer Exec(const std::string& id, const std::string& command,
                      const std::string& more = "") {
    std::string body = json::Serialize(json::object{{"command", command}});
    if (!more.empty()) body = body.substr(0, body.size() - 1) + "," + more + "}";
    return server_->Call("POST", "/v1/sandboxes/" + id + "/exec", body);
  }
  // A session whose model is served at `url`, without retries.
  std::string MakeSession(const std::string& url) {
    server_->Call(
        "POST", "/v1/providers",
        fmt::format(
            R"({{"name":"p","protocol":"openai","base_url":"{}","model":"m","max_retries":0}})",
            url));
    server_->Call("POST", "/v1/agents", R"({"name":"a","provider":"p"})");
    return server_->Call("POST", "/v1/sessions", R"({"agent":"a"})").Text("id");
  }
  Server::Answer Send(const std::string& session, const std::string& accept = "text/event-stream") {
    return server_->Call("POST", "/v1/sessions/" + session + "/messages", R"({"content":"go"})",
                         accept);
  }
  // Makes a sandbox and ends it; false when the server died on the way.
  bool TryMakeAndDelete() {
    auto made = server_->TryCall("POST", "/v1/sandboxes", "{}");
    if (!made.has_value()) return false;
    return server_->TryCall("DELETE", "/v1/sandboxes/" + made->Text("id")).has_value();
  }
  json::object NewestRun(const std::string& session) {
    json::object runs = server_->Call("GET", "/v1/sessions/" + session + "/runs").Json();
    return runs["items"].as_array().back().as_object();
  }
  std::string RunStatus(const std::string& session) {
    return std::string(NewestRun(session)["status"].as_string());
  }
  std::set<std::string> before_;
  std::unique_ptr<Server> server_;
};

}  // namespace caisson::program_test
