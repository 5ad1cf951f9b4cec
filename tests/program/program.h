// Runs build/…/bin/caisson as a user would.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/subprocess.h"
#include "http/message.h"
#include "json/json.h"

namespace caisson::program_test {

std::string ProgramPath();

struct Finished {
  int code = -1;  // 128+n for signals
  std::string out;
  std::string err;
};
// Runs to the end, with a generous deadline.
Finished RunCaisson(std::vector<std::string> arguments, std::string input = "",
                    std::vector<std::string> environment = {});

// The same with another program.
Finished RunProgram(const std::string& program, std::vector<std::string> arguments,
                    std::string input = "", std::vector<std::string> environment = {});

// A long-running program; ready when it has printed its first line. SIGKILL when dropped.
class Service {
 public:
  // A sub-command of caisson.
  Service(std::vector<std::string> arguments, std::vector<std::string> environment = {});
  // Any program, by its absolute path, with this environment and no more.
  Service(std::string program, std::vector<std::string> arguments,
          std::vector<std::string> environment);
  const std::string& first_line() const { return first_line_; }
  bool running() const { return child_ != nullptr; }
  pid_t pid() const { return child_->pid(); }
  const std::string& error_output() const { return error_output_; }
  // Sends the signal and waits: the exit code, 128+n for signals.
  int Stop(int signal);
  // Waits for its end.
  int Wait();

 private:
  void Start(SpawnSpec spec);
  void ReadFirstLine();
  std::unique_ptr<ChildProcess> child_;
  UniqueFd out_;
  UniqueFd err_;
  std::string first_line_;
  std::string error_output_;
};

// A server with a data directory of its own, on a free port.
class Server {
 public:
  Server();
  ~Server();
  void Start(std::vector<std::string> environment = {}, std::vector<std::string> more = {});
  Service& service() { return *service_; }
  const std::string& url() const { return url_; }
  const std::string& data_dir() const { return data_dir_; }
  std::string runtime_dir() const { return data_dir_ + "/run"; }

  struct Answer {
    int status = 0;
    std::string body;
    json::object Json() const { return json::ParseObject(body).value_or(json::object()); }
    std::string Text(const std::string& field) const;
  };
  // Nothing when the connection broke.
  Result<Answer> TryCall(const std::string& method, const std::string& path,
                         const std::string& body = "",
                         const std::string& accept = "application/json",
                         const http::Headers& more = {});
  Answer Call(const std::string& method, const std::string& path, const std::string& body = "",
              const std::string& accept = "application/json", const http::Headers& more = {});

 private:
  std::string data_dir_;
  std::string url_;
  std::unique_ptr<Service> service_;
};

// Calls `done` until it gives true; a failure after a minute.
bool Eventually(const std::function<bool()>& done);

}  // namespace caisson::program_test
