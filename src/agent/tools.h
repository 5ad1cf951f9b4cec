// Tools as the engine sees them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "json/json.h"
#include "model/provider.h"

namespace caisson::agent {

// What came of a call. A command that fails is no error of the tool: its exit code says it.
struct ToolOutcome {
  std::string output;              // what the model reads
  std::optional<ErrorCode> error;  // the tool itself failed; told to the model, the run goes on
  std::optional<int> exit_code;    // of a command: its own, or nothing
  std::string reason;              // of a command: "exited", "timeout", …
  bool truncated = false;

  static ToolOutcome Failed(ErrorCode code, std::string text) {
    return {std::move(text), code, std::nullopt, "", false};
  }
};

// A set of tools for one run. Calls may run at the same time.
class Toolbox {
 public:
  virtual ~Toolbox() = default;
  virtual const std::vector<model::ToolSpec>& specs() const = 0;
  // `arguments` were checked to be an object. An Error here ends the run (cancelled, fenced);
  // whatever the model can cope with is a ToolOutcome.
  virtual Task<Result<ToolOutcome>> Call(std::string call_id, std::string name,
                                         json::object arguments, Until until) = 0;
};

}  // namespace caisson::agent
