#include "launcher/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/unique_fd.h"

namespace caisson::launcher {
namespace {

UniqueFd OpenBelow(int dir, const char* path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return UniqueFd(static_cast<int>(syscall(SYS_openat2, dir, path, &how, sizeof how)));
}

// For reading; a directory of our own whose mode forbids that is changed first (without root).
UniqueFd OpenToEmpty(int dir, const char* name) {
  UniqueFd opened = OpenBelow(dir, name, O_RDONLY);
  if (!opened && errno == EACCES && fchmodat(dir, name, 0700, AT_SYMLINK_NOFOLLOW) == 0) {
    opened = OpenBelow(dir, name, O_RDONLY);
  }
  return opened;
}

class Remover {
 public:
  explicit Remover(const char* path) : path_(path) {}

  // Empties `top`. A directory inside that is not empty is emptied one level only: the directories
  // in it move up into `top` and have their turn there. So the depth never exceeds two.
  Attempt<void> Empty(int top) {
    for (;;) {
      bool found = false;
      CAISSON_TRY(ForEach(top, [&](const char* name) -> Attempt<void> {
        found = true;
        return RemoveEntry(top, name);
      }));
      if (!found) return {};
    }
  }

 private:
  template <typename Work>
  Attempt<void> ForEach(int dir, Work work) {
    alignas(dirent) char buffer[16 * 1024];
    if (lseek(dir, 0, SEEK_SET) < 0) return Tried("read", path_);
    for (;;) {
      long got = syscall(SYS_getdents64, dir, buffer, sizeof buffer);
      if (got < 0) return Tried("read", path_);
      if (got == 0) return {};
      for (long at = 0; at < got;) {
        // struct linux_dirent64 has the layout of musl's and glibc's 64-bit dirent.
        auto* entry = reinterpret_cast<dirent*>(buffer + at);
        at += entry->d_reclen;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        CAISSON_TRY(work(entry->d_name));
      }
    }
  }

  // True: `name` is gone. False: a directory that is not empty.
  Attempt<bool> RemoveSimple(int dir, const char* name) {
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) return true;
    if (errno != EISDIR && errno != EPERM) return Tried("remove", path_, name);
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
    if (errno != ENOTEMPTY && errno != EEXIST) return Tried("remove", path_, name);
    return false;
  }

  Attempt<void> RemoveEntry(int top, const char* name) {
    CAISSON_ASSIGN(bool gone, RemoveSimple(top, name));
    if (gone) return {};
    UniqueFd dir = OpenToEmpty(top, name);
    if (!dir) return Tried("remove", path_, name);
    CAISSON_TRY(ForEach(dir.get(), [&](const char* child) -> Attempt<void> {
      CAISSON_ASSIGN(bool child_gone, RemoveSimple(dir.get(), child));
      return child_gone ? Attempt<void>{} : MoveUp(dir.get(), child, top);
    }));
    if (unlinkat(top, name, AT_REMOVEDIR) == 0 || errno == ENOENT || errno == ENOTEMPTY) return {};
    return Tried("remove", path_, name);
  }

  Attempt<void> MoveUp(int dir, const char* name, int top) {
    constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
    for (;;) {
      char fresh[40];
      snprintf(fresh, sizeof fresh, ".removed-%llx", static_cast<unsigned long long>(++counter_));
      if (syscall(SYS_renameat2, dir, name, top, fresh, kNoReplace) == 0) return {};
      if (errno != EEXIST) return Tried("move", path_, name);
    }
  }

  const char* path_;
  uint64_t counter_ = 0;
};

}  // namespace

Attempt<void> RemoveTree(int base, const std::string& path) {
  size_t cut = path.rfind('/');
  std::string parent_path = cut == std::string::npos ? "." : path.substr(0, cut);
  std::string leaf = cut == std::string::npos ? path : path.substr(cut + 1);
  if (leaf.empty() || leaf == "." || leaf == ".." || path[0] == '/') {
    return Tried("remove", path.c_str(), "", EINVAL);
  }
  UniqueFd parent = OpenBelow(base, parent_path.c_str(), O_PATH);
  if (!parent) return errno == ENOENT ? Attempt<void>{} : Tried("open", parent_path.c_str());
  struct stat info{};
  if (fstatat(parent.get(), leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) < 0) {
    return errno == ENOENT ? Attempt<void>{} : Tried("remove", path.c_str());
  }
  int flags = 0;
  if (S_ISDIR(info.st_mode)) {
    flags = AT_REMOVEDIR;
    UniqueFd top = OpenToEmpty(parent.get(), leaf.c_str());
    if (!top) return errno == ENOENT ? Attempt<void>{} : Tried("remove", path.c_str());
    CAISSON_TRY(Remover(path.c_str()).Empty(top.get()));
  }
  if (unlinkat(parent.get(), leaf.c_str(), flags) < 0 && errno != ENOENT) {
    return Tried("remove", path.c_str());
  }
  return {};
}

}  // namespace caisson::launcher
