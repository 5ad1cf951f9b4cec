// Ids: three letters of kind and 26 characters of lower-case base32, made from a UUIDv7 (RFC 9562):
// "ses06f8q2…". Sortable by creation, and valid as DNS label, file name and cgroup name.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

namespace caisson {

inline constexpr size_t kIdLength = 29;

// The text of a fresh id. `kind` has three letters.
std::string MakeIdText(std::string_view kind, WallTime now, Random& random);
// kInvalidArgument unless `text` is an id of that kind.
Result<void> CheckIdText(std::string_view kind, std::string_view text);

// One type a kind, so that a run's id cannot be given where a session's is meant. Empty by default.
template <typename Kind>
class Id {
 public:
  Id() = default;
  static Id Make(const Clock& clock, Random& random) {
    return Id(MakeIdText(Kind::kPrefix, clock.Now(), random));
  }
  static Result<Id> Parse(std::string_view text) {
    CAISSON_TRY(CheckIdText(Kind::kPrefix, text));
    return Id(std::string(text));
  }

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  auto operator<=>(const Id&) const = default;

 private:
  explicit Id(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

#define CAISSON_ID(name, prefix)                        \
  struct name##Kind {                                   \
    static constexpr std::string_view kPrefix = prefix; \
  };                                                    \
  using name = Id<name##Kind>

CAISSON_ID(SessionId, "ses");
CAISSON_ID(TaskId, "tsk");
CAISSON_ID(RunId, "run");
CAISSON_ID(MessageId, "msg");
CAISSON_ID(AgentId, "agt");
CAISSON_ID(ProviderId, "prv");
CAISSON_ID(SandboxId, "sbx");
CAISSON_ID(WorkspaceId, "wsp");
CAISSON_ID(ApprovalId, "apr");
CAISSON_ID(ReplicaId, "rep");

#undef CAISSON_ID

}  // namespace caisson

template <typename Kind>
struct std::hash<caisson::Id<Kind>> {
  size_t operator()(const caisson::Id<Kind>& id) const noexcept {
    return std::hash<std::string>()(id.text());
  }
};
