#include "sandbox/router.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace caisson::sandbox {
namespace {

Result<void> CheckCaps(std::string_view direction, const TransferCaps& caps,
                       const TransferCaps& ceiling) {
  const std::tuple<std::string_view, int64_t, int64_t> fields[] = {
      {"max_files", caps.max_files, ceiling.max_files},
      {"max_file_bytes", caps.max_file_bytes, ceiling.max_file_bytes},
      {"max_total_bytes", caps.max_total_bytes, ceiling.max_total_bytes}};
  for (const auto& [field, value, most] : fields) {
    if (value <= most) continue;
    return Fail(ErrorCode::kTransferLimitsNotPermitted,
                fmt::format("transfer.{}.{} is {}, and the backend's ceiling is {}", direction,
                            field, value, most));
  }
  return {};
}

}  // namespace

Result<void> CheckSpec(const Backend& backend, const SandboxSpec& spec) {
  CAISSON_TRY(backend.Check(spec));
  if (!spec.read_only_sets.empty() && !backend.declaration().read_only_sets) {
    return Fail(ErrorCode::kCapabilityNotSupported,
                fmt::format("read_only_sets: on this host the backend \"{}\" runs guest and "
                            "commands as one user, which could change them",
                            backend.name()));
  }
  const TransferCaps& ceiling = backend.declaration().transfer_ceiling;
  CAISSON_TRY(CheckCaps("in", spec.transfer.in, ceiling));
  return CheckCaps("out", spec.transfer.out, ceiling);
}

}  // namespace caisson::sandbox
