#include "launcher/user.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/unique_fd.h"

namespace caisson::launcher {
namespace {

Attempt<void> WriteProcFile(int pid, const char* name, const std::string& text) {
  char path[48];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  if (!file || write(file.get(), text.data(), text.size()) < 0) return Tried("write", path);
  return {};
}

std::string MapText(const std::vector<IdMap>& map) {
  std::string text;
  for (const IdMap& range : map) {
    text += std::to_string(range.inside) + " " + std::to_string(range.outside) + " " +
            std::to_string(range.count) + "\n";
  }
  return text;
}

}  // namespace

uint32_t SeenAs(const LaunchPlan& plan, const std::vector<IdMap>& map, uint32_t outside) {
  if (!plan.user_namespace_first) return outside;
  for (const IdMap& range : map) {
    if (outside - range.outside < range.count && outside >= range.outside) {
      return range.inside + (outside - range.outside);
    }
  }
  return outside;  // not mapped: the kernel refuses it, and the step says so
}

uint32_t OutsideRoot(const std::vector<IdMap>& map) { return map.empty() ? 0 : map[0].outside; }

bool MustDenySetgroups(const LaunchPlan& plan) {
  return plan.user_namespace_first && plan.gid_map.size() == 1 && plan.gid_map[0].count == 1;
}

Attempt<void> WriteIdMaps(const LaunchPlan& plan, int pid) {
  if (MustDenySetgroups(plan)) CAISSON_TRY(WriteProcFile(pid, "setgroups", "deny"));
  CAISSON_TRY(WriteProcFile(pid, "uid_map", MapText(plan.uid_map)));
  return WriteProcFile(pid, "gid_map", MapText(plan.gid_map));
}

Attempt<void> TakeIdentity(const LaunchPlan& plan) {
  // Raw system calls: there is one thread, and no library lock to take.
  if (!MustDenySetgroups(plan) && syscall(SYS_setgroups, 0, nullptr) < 0) return Tried("setgroups");
  uint32_t gid = plan.guest_gid;
  if (syscall(SYS_setresgid, gid, gid, gid) < 0) return Tried("setresgid");
  uint32_t uid = plan.guest_uid;
  if (syscall(SYS_setresuid, uid, uid, uid) < 0) return Tried("setresuid");
  return {};
}

Attempt<void> SetLimits(const LaunchPlan& plan) {
  for (const ResourceLimit& limit : plan.limits) {
    struct rlimit value{limit.soft, limit.hard};
    if (setrlimit(static_cast<int>(limit.resource), &value) < 0) {
      char number[12];
      snprintf(number, sizeof number, "%u", limit.resource);
      return Tried("setrlimit", number);
    }
  }
  return {};
}

Attempt<void> DropCapabilities(const LaunchPlan& plan) {
  for (unsigned long capability = 0; capability < 64; capability++) {
    if ((plan.keep_capabilities >> capability & 1) != 0) continue;
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0) continue;
    if (errno == EINVAL) break;  // beyond the last one this kernel knows
    return Tried("drop capability");
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) return Tried("clear ambient");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  if (syscall(SYS_capget, &header, sets) < 0) return Tried("capget");
  sets[0].inheritable = sets[1].inheritable = 0;
  if (syscall(SYS_capset, &header, sets) < 0) return Tried("capset");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return Tried("no_new_privs");
  return {};
}

}  // namespace caisson::launcher
