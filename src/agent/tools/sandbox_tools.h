// The tools that work in a sandbox, under the names and arguments that models know from Deep
// Agents: execute, ls, read_file, write_file, edit_file, glob, grep. read_output is Caisson's own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/tools.h"
#include "base/clock.h"
#include "sandbox/guest_client.h"

namespace caisson::agent {

// Gives the run's sandbox, made at the first call. An error is told to the model by a sentence of
// the closed list below, never by its own text.
using SandboxSource =
    std::function<Task<Result<std::shared_ptr<sandbox::GuestClient>>>(Until until)>;

struct SandboxToolLimits {
  Millis default_timeout{120'000};  // of execute
  Millis max_timeout{3'600'000};
  uint64_t output_head_bytes = 48 * 1024;  // of a command, from its start
  uint64_t output_tail_bytes = 16 * 1024;  // and from its end
  // So much of it is on the sandbox's disk, for read_output. The guest keeps that of its last 256
  // commands, so that at worst it is a quarter of a disk of the default size.
  uint64_t output_kept_bytes = 1024 * 1024;
};

class SandboxTools final : public Toolbox {
 public:
  SandboxTools(SandboxSource source, const Clock& clock, SandboxToolLimits limits = {});
  const std::vector<model::ToolSpec>& specs() const override { return specs_; }
  Task<Result<ToolOutcome>> Call(std::string call_id, std::string name, json::object arguments,
                                 Until until) override;

 private:
  using Guest = std::shared_ptr<sandbox::GuestClient>;
  using Tool = Task<Result<ToolOutcome>> (SandboxTools::*)(Guest guest, json::object arguments,
                                                           Until until);
  struct Entry {
    std::string_view name;
    Tool tool;
  };
  static const std::vector<Entry>& Entries();

  Task<Result<ToolOutcome>> Execute(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> ReadOutput(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> Ls(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> ReadFile(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> WriteFile(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> EditFile(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> Glob(Guest guest, json::object arguments, Until until);
  Task<Result<ToolOutcome>> Grep(Guest guest, json::object arguments, Until until);

  SandboxSource source_;
  const Clock& clock_;
  SandboxToolLimits limits_;
  std::vector<model::ToolSpec> specs_;
};

// The sentence for a sandbox that cannot be used; provider texts stay in the log.
std::string SandboxTrouble(ErrorCode code);

}  // namespace caisson::agent
