#include "program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>

#include "base/syscall.h"
#include "http/client.h"
#include "http/connector.h"
#include "net/loop.h"

namespace caisson::program_test {
namespace {

SystemClock system_clock;

Deadline Soon() { return Deadline::After(system_clock, Millis(60'000)); }

int CodeOf(const ExitStatus& status) {
  return status.signal != 0 ? 128 + status.signal : status.code;
}

SpawnSpec SpecOf(std::vector<std::string> arguments, std::vector<std::string> environment) {
  SpawnSpec spec;
  spec.program = ProgramPath();
  spec.arguments = std::move(arguments);
  spec.environment = std::move(environment);
  spec.environment.emplace_back("PATH=/usr/bin:/bin");
  return spec;
}

}  // namespace

std::string ProgramPath() {
  const char* dir = ::getenv("CAISSON_BIN_DIR");
  return std::string(dir == nullptr ? "build/debug/bin" : dir) + "/caisson";
}

Finished RunProgram(const std::string& program, std::vector<std::string> arguments,
                    std::string input, std::vector<std::string> environment) {
  SpawnSpec spec = SpecOf(std::move(arguments), std::move(environment));
  spec.program = program;
  auto output = RunCommand(spec, input, 64 << 20, system_clock, Soon());
  if (!output) {
    ADD_FAILURE() << output.error().ToString();
    return {};
  }
  return {CodeOf(output->status), std::move(output->out), std::move(output->err)};
}

Finished RunCaisson(std::vector<std::string> arguments, std::string input,
                    std::vector<std::string> environment) {
  return RunProgram(ProgramPath(), std::move(arguments), std::move(input), std::move(environment));
}

Service::Service(std::vector<std::string> arguments, std::vector<std::string> environment) {
  Start(SpecOf(std::move(arguments), std::move(environment)));
}

Service::Service(std::string program, std::vector<std::string> arguments,
                 std::vector<std::string> environment) {
  SpawnSpec spec;
  spec.program = std::move(program);
  spec.arguments = std::move(arguments);
  spec.environment = std::move(environment);
  Start(std::move(spec));
}

void Service::Start(SpawnSpec spec) {
  Pipe out = MakePipe().value();
  Pipe err = MakePipe().value();
  spec.descriptors = {{1, out.write.get()}, {2, err.write.get()}};
  auto child = Spawn(spec);
  if (!child) {
    ADD_FAILURE() << child.error().ToString();
    return;
  }
  child_ = std::make_unique<ChildProcess>(std::move(*child));
  out.write.reset();
  err.write.reset();
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  ReadFirstLine();
}

void Service::ReadFirstLine() {
  while (first_line_.find('\n') == std::string::npos) {
    pollfd poll_fd{out_.get(), POLLIN, 0};
    if (::poll(&poll_fd, 1, 60'000) <= 0) {
      ADD_FAILURE() << "nothing was printed for a minute";
      return;
    }
    char c = 0;
    if (::read(out_.get(), &c, 1) != 1) return;  // it has ended
    first_line_ += c;
  }
  first_line_.pop_back();
}

int Service::Wait() {
  auto status = child_->Wait(system_clock, Soon());
  if (auto text = ReadAll(err_.get(), 1 << 20)) error_output_ = *text;
  if (!status) {
    ADD_FAILURE() << status.error().ToString();
    return -1;
  }
  child_.reset();
  return CodeOf(*status);
}

int Service::Stop(int signal) {
  EXPECT_TRUE(child_->Signal(signal).has_value());
  return Wait();
}

Server::Server() {
  char pattern[] = "/tmp/caisson-test-XXXXXX";
  data_dir_ = ::mkdtemp(pattern);
}

Server::~Server() {
  if (service_ && service_->running()) service_->Stop(SIGTERM);
  // Sandboxes outlive a server; one that ends them cleans up after the test.
  Start({}, {"--ephemeral"});
  EXPECT_EQ(service_->Stop(SIGTERM), 0) << service_->error_output();
  std::error_code ignored;
  std::filesystem::remove_all(data_dir_, ignored);
}

void Server::Start(std::vector<std::string> environment, std::vector<std::string> more) {
  std::vector<std::string> arguments{"serve",   "--listen",      "127.0.0.1:0", "--data-dir",
                                     data_dir_, "--runtime-dir", runtime_dir()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  service_ = std::make_unique<Service>(std::move(arguments), std::move(environment));
  const std::string& line = service_->first_line();
  size_t at = line.find("http://");
  url_ = at == std::string::npos ? "" : line.substr(at, line.find(' ', at) - at);
}

std::string Server::Answer::Text(const std::string& field) const {
  json::object object = Json();
  const json::value* value = object.if_contains(field);
  return value == nullptr || !value->is_string() ? "" : std::string(value->get_string());
}

Result<Server::Answer> Server::TryCall(const std::string& method, const std::string& path,
                                       const std::string& body, const std::string& accept,
                                       const http::Headers& more) {
  net::Loop loop(system_clock);
  auto work = [&]() -> Task<Result<Answer>> {
    CAISSON_CO_ASSIGN(http::Url url, http::ParseUrl(url_));
    CAISSON_CO_ASSIGN(auto stream, co_await net::DialTcp(loop, url.host, url.port, Until(Soon())));
    http::ClientConnection client(std::move(stream));
    http::RequestHead head{method, path, {{"Host", url.Authority()}, {"Accept", accept}}};
    for (const http::Header& field : more.fields()) head.headers.Add(field.name, field.value);
    CAISSON_CO_ASSIGN(auto answer, co_await client.Send(std::move(head), body, Until(Soon())));
    CAISSON_CO_ASSIGN(std::string text, co_await client.ReadWholeBody(64 << 20, Until(Soon())));
    co_return Answer{answer.status, std::move(text)};
  };
  return net::RunUntilDone(loop, work());
}

Server::Answer Server::Call(const std::string& method, const std::string& path,
                            const std::string& body, const std::string& accept,
                            const http::Headers& more) {
  auto answer = TryCall(method, path, body, accept, more);
  if (answer) return *answer;
  ADD_FAILURE() << method << " " << path << ": " << answer.error().ToString();
  return {};
}

bool Eventually(const std::function<bool()>& done) {
  Deadline deadline = Soon();
  while (!deadline.Passed(system_clock)) {
    if (done()) return true;
    ::poll(nullptr, 0, 10);
  }
  return false;
}

}  // namespace caisson::program_test
