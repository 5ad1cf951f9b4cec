// All execs of the sandbox, and the calls of docs/guest-protocol.md section 5.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guest/exec.h"
#include "guest/json.h"

namespace caisson::guest {

class ExecManager {
 public:
  explicit ExecManager(ExecContext& context);

  // Adds the calls to the server.
  void Install();
  size_t running() const;
  // Kills everything; `done` is called when nothing is left, or after 2 s.
  void KillAll(std::function<void()> done);

 private:
  using ExecPtr = std::unique_ptr<Exec>;

  void Create(Connection& connection, std::string body);
  void Started(uint64_t connection_id, Exec& exec, std::optional<Error> error);
  void List(Connection& connection);
  void CallOne(Connection& connection, std::string_view rest);
  void Stream(Connection& connection, Exec& exec);
  void Output(Connection& connection, Exec& exec);
  void Stdin(Connection& connection, Exec& exec);
  void Signal(Connection& connection, Exec& exec, const Json& body);
  void Resize(Connection& connection, Exec& exec, const Json& body);
  void Delete(Connection& connection, Exec& exec);

  void Changed(Exec& exec);
  void Tidy();
  void FinishDeletes();
  Exec* Find(std::string_view id);

  ExecContext& context_;
  std::map<std::string, ExecPtr, std::less<>> execs_;  // those that can be asked for
  std::map<std::string, ExecPtr, std::less<>> starting_;
  std::deque<std::string> ended_order_;  // oldest first
  // Forgotten ones that still have a reader or left processes behind.
  std::vector<ExecPtr> forgotten_;
  struct PendingDelete {
    uint64_t connection_id = 0;
    std::string id;
    int64_t deadline_ms = 0;
  };
  std::vector<PendingDelete> deletes_;
  std::function<void()> all_dead_;
  uint64_t next_serial_ = 1;
  bool tidy_scheduled_ = false;
};

// Checks a request's body; `serial` makes the id when the caller gives none.
Result<ExecSpec> ParseExecSpec(const Json& body, const Config& config, uint64_t serial);

}  // namespace caisson::guest
