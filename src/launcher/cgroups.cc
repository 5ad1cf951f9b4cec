#include "launcher/cgroups.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "launcher/user.h"

namespace caisson::launcher {
namespace {

enum class Tree { kNone, kV1, kV2 };

Tree TreeOf(int dir) {
  struct statfs info{};
  if (fstatfs(dir, &info) < 0) return Tree::kNone;
  if (info.f_type == CGROUP_SUPER_MAGIC) return Tree::kV1;
  return info.f_type == CGROUP2_SUPER_MAGIC ? Tree::kV2 : Tree::kNone;
}

UniqueFd OpenDirectory(int parent, const char* path) {
  return UniqueFd(openat(parent, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

// False with errno on failure.
bool WriteAt(int dir, const char* file, const char* value) {
  UniqueFd control(openat(dir, file, O_WRONLY | O_CLOEXEC));
  return control && write(control.get(), value, strlen(value)) >= 0;
}

Attempt<void> Delegate(const LaunchPlan& plan, int dir, const char* path) {
  uint32_t uid = OutsideRoot(plan.uid_map);
  uint32_t gid = OutsideRoot(plan.gid_map);
  for (const char* name : {"", "cgroup.procs"}) {
    if (fchownat(dir, name, uid, gid, AT_EMPTY_PATH) < 0) return Tried("chown", path, name);
  }
  return {};
}

Attempt<void> Make(const LaunchPlan& plan, const CgroupDir& wanted, CgroupHandles& handles,
                   std::vector<std::string>& made) {
  const char* path = wanted.path.c_str();
  if (*path != '/') return Tried("mkdir", path, "", EINVAL);
  if (mkdir(path, 0755) < 0) return Tried("mkdir", path);
  UniqueFd dir = OpenDirectory(AT_FDCWD, path);
  Tree tree = dir ? TreeOf(dir.get()) : Tree::kNone;
  if (tree == Tree::kNone) {
    rmdir(path);
    return Tried("not on a cgroup file system:", path, "", EINVAL);
  }
  made.push_back(wanted.path);
  for (const CgroupDir::Write& entry : wanted.writes) {
    if (WriteAt(dir.get(), entry.file.c_str(), entry.value.c_str())) continue;
    if (entry.required) return Tried("write", path, entry.file.c_str());
  }
  if (wanted.delegate) CAISSON_TRY(Delegate(plan, dir.get(), path));
  if (!wanted.memory_events.empty()) {
    const char* name = wanted.memory_events.c_str();
    handles.memory_events.reset(openat(dir.get(), name, O_RDONLY | O_CLOEXEC));
    if (!handles.memory_events) return Tried("open", path, name);
  }
  if (wanted.role != CgroupDir::Role::kParent) {
    bool guest = wanted.role == CgroupDir::Role::kGuest;
    CgroupPlace& place = guest ? handles.guest : handles.command;
    if (tree == Tree::kV1) {
      place.join.emplace_back(openat(dir.get(), "tasks", O_WRONLY | O_CLOEXEC));
      if (!place.join.back()) return Tried("open", path, "tasks");
    } else {
      place.into.reset(fcntl(dir.get(), F_DUPFD_CLOEXEC, 0));
    }
  }
  if (wanted.delegate) handles.delegated = std::move(dir);
  return {};
}

// Removes every directory below `path`, then itself. Walks to a deepest directory and starts again
// from the top, so that neither depth nor number takes memory; the guest made few of them.
int RemoveWithChildren(const char* path) {
  for (;;) {
    UniqueFd parent = OpenDirectory(AT_FDCWD, path);
    if (!parent) return errno == ENOENT ? 0 : errno;
    if (TreeOf(parent.get()) == Tree::kNone) return EINVAL;
    if (rmdir(path) == 0 || errno == ENOENT) return 0;
    int error = errno;
    if (error != EBUSY && error != ENOTEMPTY) return error;
    char name[256] = "";
    UniqueFd holder;  // of `name`
    for (;;) {
      DIR* entries = fdopendir(fcntl(parent.get(), F_DUPFD_CLOEXEC, 0));
      if (entries == nullptr) return errno;
      char child[256] = "";
      while (dirent* entry = readdir(entries)) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
          snprintf(child, sizeof child, "%s", entry->d_name);
          break;
        }
      }
      closedir(entries);
      if (*child == '\0') break;
      UniqueFd next = OpenDirectory(parent.get(), child);
      if (!next) return errno;
      memcpy(name, child, sizeof name);
      holder = std::move(parent);
      parent = std::move(next);
    }
    if (!holder) return error;  // no child: a process is in `path` itself
    if (unlinkat(holder.get(), name, AT_REMOVEDIR) < 0 && errno != ENOENT) return errno;
  }
}

}  // namespace

Attempt<CgroupHandles> MakeCgroups(const LaunchPlan& plan, std::vector<std::string>& made) {
  CgroupHandles handles;
  for (const CgroupDir& dir : plan.cgroups) CAISSON_TRY(Make(plan, dir, handles, made));
  return handles;
}

void KillCgroups(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    UniqueFd dir = OpenDirectory(AT_FDCWD, path.c_str());
    Tree tree = dir ? TreeOf(dir.get()) : Tree::kNone;
    if (tree == Tree::kV1) WriteAt(dir.get(), "freezer.state", "THAWED");
    if (tree == Tree::kV2) WriteAt(dir.get(), "cgroup.kill", "1");
  }
}

int RemoveCgroups(const std::vector<std::string>& paths) {
  int first_error = 0;
  for (size_t i = paths.size(); i-- > 0;) {
    if (paths[i].empty() || paths[i][0] != '/') continue;
    int error = RemoveWithChildren(paths[i].c_str());
    if (first_error == 0) first_error = error;
  }
  return first_error;
}

}  // namespace caisson::launcher
