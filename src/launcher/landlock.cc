#include "launcher/landlock.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace caisson::launcher {
namespace {

// The fields of the newest version that is used; an older kernel is given only the first of them.
struct Ruleset {
  uint64_t fs;
  uint64_t net;
  uint64_t scoped;
};
// What can be granted on something that is not a directory: execute, write, read, truncate, ioctl.
constexpr uint64_t kFileAccess = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15;

Attempt<void> AddRule(int ruleset, int object, uint64_t access, const char* name) {
  struct stat info{};
  if (fstat(object, &info) < 0) return Tried("landlock rule", name);
  landlock_path_beneath_attr rule{};
  rule.parent_fd = object;
  rule.allowed_access = S_ISDIR(info.st_mode) ? access : access & kFileAccess;
  if (rule.allowed_access == 0) return {};
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0) {
    return Tried("landlock rule", name);
  }
  return {};
}

}  // namespace

Attempt<void> ApplyLandlock(const LaunchPlan& plan, int guest, int cgroup) {
  if ((plan.landlock_fs | plan.landlock_net | plan.landlock_scoped) == 0) return {};
  Ruleset attributes{plan.landlock_fs, plan.landlock_net, plan.landlock_scoped};
  size_t size = attributes.scoped != 0 ? 24 : attributes.net != 0 ? 16 : 8;
  UniqueFd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0)));
  if (!ruleset) return Tried("landlock ruleset");
  if (plan.landlock_fs != 0) {
    for (const LandlockRule& rule : plan.landlock_rules) {
      UniqueFd object(open(rule.path.c_str(), O_PATH | O_CLOEXEC));
      if (!object) return Tried("landlock rule", rule.path.c_str());
      CAISSON_TRY(AddRule(ruleset.get(), object.get(), rule.access, rule.path.c_str()));
    }
    uint64_t run = plan.landlock_fs & (LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE);
    Attempt<void> added = AddRule(ruleset.get(), guest, run, "guest");
    // EBADFD: an anonymous file, which Landlock always lets through and takes no rule for.
    if (!added && added.error().error_number != EBADFD) return added;
    if (cgroup >= 0) CAISSON_TRY(AddRule(ruleset.get(), cgroup, plan.landlock_fs, "cgroup"));
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) < 0) return Tried("landlock restrict");
  return {};
}

}  // namespace caisson::launcher
