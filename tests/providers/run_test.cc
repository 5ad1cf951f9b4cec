// Whole runs of caisson serve with a provider that we did not write.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "json/json.h"
#include "mock.h"
#include "program.h"

namespace caisson::providers_test {
namespace {

using model::Protocol;
using program_test::Server;

class MockedRunTest : public ::testing::TestWithParam<Protocol> {
 public:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (std::string missing = Mock::Missing(); !missing.empty()) GTEST_SKIP() << missing;
    // One for each test: some answers depend on what was asked before.
    mock_ = std::make_unique<Mock>();
    server_ = std::make_unique<Server>();
    server_->Start({std::string("CAISSON_TEST_PROVIDER_KEY=") + kKey});
    ASSERT_FALSE(server_->url().empty());
  }

  // Runs to the end: the events, as they came.
  std::string Run(const std::string& text) {
    Server::Answer provider = server_->Call(
        "POST", "/v1/providers",
        fmt::format(R"({{"name":"p","protocol":"{}","base_url":"{}","model":"mock-model",)"
                    R"("api_key_env":"CAISSON_TEST_PROVIDER_KEY","max_retries":2}})",
                    GetParam() == Protocol::kOpenAi ? "openai" : "anthropic",
                    mock_->BaseUrl(GetParam())));
    EXPECT_EQ(provider.status, 201) << provider.body;
    server_->Call("POST", "/v1/agents", R"({"name":"a","provider":"p"})");
    session_ = server_->Call("POST", "/v1/sessions", R"({"agent":"a"})").Text("id");
    return server_
        ->Call("POST", "/v1/sessions/" + session_ + "/messages",
               json::Serialize(json::object{{"content", text}}), "text/event-stream")
        .body;
  }
  std::string RunStatus() {
    json::object runs = server_->Call("GET", "/v1/sessions/" + session_ + "/runs").Json();
    return std::string(runs["items"].as_array().at(0).as_object()["status"].as_string());
  }

  std::unique_ptr<Mock> mock_;
  std::unique_ptr<Server> server_;
  std::string session_;
};

INSTANTIATE_TEST_SUITE_P(Protocols, MockedRunTest,
                         ::testing::Values(Protocol::kOpenAi, Protocol::kAnthropic),
                         [](const auto& instance) {
                           return instance.param == Protocol::kOpenAi ? "OpenAi" : "Anthropic";
                         });

::testing::AssertionResult Has(const std::string& events, const std::string& part) {
  if (events.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "no " << part << " in " << events;
}

// The mock gives the second answer only when it finds what the command printed in the sandbox.
TEST_P(MockedRunTest, TheModelRunsACommandAndAnswers) {
  std::string events = Run("run it");
  EXPECT_TRUE(Has(events, R"("name":"execute")"));
  EXPECT_TRUE(Has(events, "made in /"));
  EXPECT_TRUE(Has(events, R"("exit_code":3)"));
  EXPECT_TRUE(Has(events, R"("content":"It was made.")"));
  EXPECT_TRUE(Has(events, R"("model_calls":2)"));
  EXPECT_TRUE(Has(events, R"("input_tokens":250)"));
  EXPECT_TRUE(Has(events, R"("output_tokens":25)"));
  EXPECT_EQ(RunStatus(), "done");
}

// First the rate is limited, then the answer breaks in the middle.
TEST_P(MockedRunTest, ABusyProviderIsAskedAgain) {
  std::string events = Run("busy at first");
  EXPECT_TRUE(Has(events, R"("attempt":1,"code":"model_rate_limited","wait_ms":1000)"));
  EXPECT_TRUE(Has(events, R"("attempt":2,"code":"model_unavailable")"));
  EXPECT_TRUE(Has(events, R"("content":"Now I have time.")"));
  EXPECT_EQ(RunStatus(), "done");
}

TEST_P(MockedRunTest, ARefusalEndsTheRunWithTheProvidersReason) {
  std::string events = Run("status 400");
  EXPECT_TRUE(Has(events, R"("code":"model_bad_request")"));
  EXPECT_TRUE(Has(events, "no such model"));
  EXPECT_EQ(RunStatus(), "failed");
}

// A long reason is cut; the events stay JSON all the same.
TEST_P(MockedRunTest, ALongReasonIsToldInValidText) {
  std::istringstream lines(Run("long reason"));
  int events = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: ")) continue;
    events++;
    EXPECT_TRUE(json::Parse(line.substr(6)).has_value()) << line;
  }
  EXPECT_GT(events, 2);
  EXPECT_EQ(RunStatus(), "failed");
  json::object kept = server_->Call("GET", "/v1/sessions/" + session_ + "/events").Json();
  EXPECT_TRUE(kept.contains("items"));
}

}  // namespace
}  // namespace caisson::providers_test
