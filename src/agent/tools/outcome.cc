#include "agent/tools/outcome.h"

#include <fmt/format.h>

#include "agent/tools/sandbox_tools.h"

namespace caisson::agent {
namespace {

// Errors that say something about the call (a path, a pattern); everything else is about the
// sandbox and is told by the closed list.
bool IsForTheModel(ErrorCode code) {
  int status = InfoOf(code).http_status;
  switch (code) {
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kPermissionDenied:
    case ErrorCode::kStaleOwner:
    case ErrorCode::kSandboxUnclean:
    case ErrorCode::kSandboxLost:
    case ErrorCode::kSandboxNotReady:
    case ErrorCode::kSandboxSuspended:
    case ErrorCode::kHostUnsupported:
    case ErrorCode::kLimitNotEnforced:
      return false;
    case ErrorCode::kDiskFull:
    case ErrorCode::kSpawnFailed:
      return true;
    default:
      return status >= 400 && status < 500 && status != 499;
  }
}

}  // namespace

Result<ToolOutcome> ToOutcome(const Error& error) {
  if (error.code == ErrorCode::kCancelled) return Fail(error);
  std::string text = IsForTheModel(error.code)
                         ? fmt::format("Error ({}): {}", error.wire(), error.message)
                         : SandboxTrouble(error.code);
  return ToolOutcome::Failed(error.code, std::move(text));
}

Result<void> Checked(json::ObjectReader& reader) {
  return reader.Finish(json::ObjectReader::Unknown::kIgnore);
}

Result<json::object> MetaOf(const http::ResponseHead& head) {
  auto meta = head.headers.Find(guest::kHeaderMeta);
  if (!meta.has_value())
    return Fail(ErrorCode::kProtocol, "the guest sent no description of a file");
  return json::ParseObject(*meta);
}

}  // namespace caisson::agent
