#include "launcher/mounts.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "launcher/user.h"

namespace caisson::launcher {
namespace {

constexpr unsigned kRecursive = 0x8000;  // AT_RECURSIVE
constexpr int kDetach = 2;               // MNT_DETACH
constexpr uint64_t kPrivate = 1 << 18;   // MS_PRIVATE

int Call(long result) { return static_cast<int>(result); }

// Opens `path` as seen from inside the new root: no link, "..", or magic link leads out of it.
UniqueFd OpenInRoot(int root, const char* path, uint64_t flags) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(Call(syscall(SYS_openat2, root, *path == '\0' ? "." : path, &how, sizeof how)));
}

Attempt<void> SetAttributes(int mount, uint64_t set, bool recursive, const char* name) {
  struct mount_attr attributes{};
  attributes.attr_set = set;
  attributes.propagation = kPrivate;
  unsigned flags = AT_EMPTY_PATH | (recursive ? kRecursive : 0);
  if (syscall(SYS_mount_setattr, mount, "", flags, &attributes, sizeof attributes) < 0) {
    return Tried("mount_setattr", name);
  }
  return {};
}

// A new file system, configured option by option.
class NewFilesystem {
 public:
  explicit NewFilesystem(const char* type) : type_(type) {
    context_.reset(Call(syscall(SYS_fsopen, type, 1u /* FSOPEN_CLOEXEC */)));
    if (!context_) error_ = errno;
    Text("source", type);
  }
  void Text(const char* key, const char* value) {
    if (error_ == 0 &&
        syscall(SYS_fsconfig, context_.get(), FSCONFIG_SET_STRING, key, value, 0) < 0)
      error_ = errno;
  }
  void Number(const char* key, const char* format, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, format, static_cast<unsigned long long>(value));
    Text(key, text);
  }
  Attempt<UniqueFd> Mount(unsigned attributes) {
    if (error_ == 0 && syscall(SYS_fsconfig, context_.get(), FSCONFIG_CMD_CREATE, 0, 0, 0) < 0)
      error_ = errno;
    if (error_ != 0) return Tried("configure", type_, "", error_);
    UniqueFd mount(
        Call(syscall(SYS_fsmount, context_.get(), 1u /* FSMOUNT_CLOEXEC */, attributes)));
    if (!mount) return Tried("fsmount", type_);
    return mount;
  }

 private:
  const char* type_;
  UniqueFd context_;
  int error_ = 0;
};

class Builder {
 public:
  explicit Builder(const LaunchPlan& plan) : plan_(plan) {}

  Attempt<UniqueFd> Build() {
    UniqueFd host_root(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!host_root) return Tried("open", "/");
    CAISSON_TRY(SetAttributes(host_root.get(), 0, true, "/"));
    CAISSON_TRY(MountRoot());
    for (const MountStep& step : plan_.mounts) CAISSON_TRY(Do(step));
    return std::move(root_);
  }

 private:
  Attempt<void> MountRoot() {
    UniqueFd stage(open(plan_.stage_dir.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!stage) return Tried("open", plan_.stage_dir.c_str());
    if (plan_.root_dir.empty()) {
      NewFilesystem tmpfs("tmpfs");
      tmpfs.Number("size", "%llu", plan_.root_tmpfs_bytes);
      tmpfs.Text("mode", "755");
      CAISSON_ASSIGN(root_, tmpfs.Mount(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    } else {
      UniqueFd source(open(plan_.root_dir.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!source) return Tried("open", plan_.root_dir.c_str());
      CAISSON_ASSIGN(root_, Clone(source.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, true,
                                  plan_.root_dir.c_str()));
    }
    return Attach(root_.get(), stage.get(), plan_.stage_dir.c_str());
  }

  // The directory that holds the last component of `target`, made (0755) where it is missing. Many
  // steps in a row have the same one: it is kept until something is mounted on a directory.
  Attempt<int> Parent(const std::string& target, const char*& leaf) {
    size_t cut = target.rfind('/');
    leaf = target.c_str() + (cut == std::string::npos ? 0 : cut + 1);
    if (cut == std::string::npos || cut == 0) return root_.get();
    if (parent_ && cut == parent_length_ && memcmp(parent_path_, target.c_str(), cut) == 0) {
      return parent_.get();
    }
    if (cut >= sizeof parent_path_) return Tried("open", target.c_str(), "", ENAMETOOLONG);
    memcpy(parent_path_, target.c_str(), cut);
    parent_path_[cut] = '\0';
    parent_length_ = cut;
    parent_ = OpenInRoot(root_.get(), parent_path_, O_PATH | O_DIRECTORY);
    if (!parent_ && errno == ENOENT) CAISSON_TRY(MakeParent());
    if (!parent_) return Tried("open", parent_path_);
    return parent_.get();
  }

  // parent_path_, component by component.
  Attempt<void> MakeParent() {
    UniqueFd dir = OpenInRoot(root_.get(), "", O_PATH | O_DIRECTORY);
    for (size_t begin = 0; begin < parent_length_;) {
      size_t end = begin;
      while (end < parent_length_ && parent_path_[end] != '/') end++;
      parent_path_[end] = '\0';
      if (mkdirat(dir.get(), parent_path_ + begin, 0755) < 0 && errno != EEXIST) {
        return Tried("mkdir", parent_path_);
      }
      dir = OpenInRoot(root_.get(), parent_path_, O_PATH | O_DIRECTORY);
      if (!dir) return Tried("open", parent_path_);
      if (end < parent_length_) parent_path_[end] = '/';
      begin = end + 1;
    }
    parent_ = std::move(dir);
    return {};
  }

  // What to mount on: `target` itself, made as a directory or an empty file when it is missing.
  Attempt<UniqueFd> Target(const std::string& target, bool directory) {
    const char* leaf = "";
    CAISSON_ASSIGN(int parent, Parent(target, leaf));
    int made = directory ? mkdirat(parent, leaf, 0755) : mknodat(parent, leaf, S_IFREG | 0644, 0);
    // What was there already may be a link, to be followed inside the root.
    UniqueFd found = made == 0 ? UniqueFd(openat(parent, leaf, O_PATH | O_NOFOLLOW | O_CLOEXEC))
                     : errno == EEXIST ? OpenInRoot(root_.get(), target.c_str(), O_PATH)
                                       : UniqueFd();
    if (!found) return Tried("mount point", target.c_str());
    return found;
  }

  Attempt<void> Attach(int mount, int target, const char* name, bool directory = true) {
    constexpr unsigned kByDescriptor = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    if (directory) parent_.reset();  // it may be hidden from now on
    if (syscall(SYS_move_mount, mount, "", target, "", kByDescriptor) < 0) {
      return Tried("move_mount", name);
    }
    return {};
  }

  Attempt<void> Do(const MountStep& step) {
    switch (step.op) {
      case MountStep::Op::kBind:
        return Bind(step);
      case MountStep::Op::kTmpfs:
        return Tmpfs(step);
      case MountStep::Op::kProc: {
        NewFilesystem proc("proc");
        return MountOn(step, proc, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
      }
      case MountStep::Op::kDevPts: {
        NewFilesystem pts("devpts");
        pts.Text("ptmxmode", "0666");
        pts.Text("mode", "0620");
        if (step.gid != 0) pts.Number("gid", "%llu", Gid(step));
        return MountOn(step, pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
      }
      case MountStep::Op::kDirectory:
        return Directory(step);
      case MountStep::Op::kSymlink:
        return Symlink(step);
      case MountStep::Op::kFile:
        return File(step);
      case MountStep::Op::kMask:
        return Mask(step);
      case MountStep::Op::kReadOnly:
        return ReadOnly(step);
    }
    return Tried("mount step", step.target.c_str(), "", EINVAL);
  }

  // A detached copy of the mount at `source`, with everything below it for a directory.
  static Attempt<UniqueFd> Clone(int source, uint64_t attributes, bool recursive,
                                 const char* name) {
    unsigned flags =
        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (recursive ? kRecursive : 0);
    UniqueFd tree(Call(syscall(SYS_open_tree, source, "", flags)));
    if (!tree) return Tried("bind", name);
    CAISSON_TRY(SetAttributes(tree.get(), attributes, recursive, name));
    return tree;
  }

  Attempt<void> Bind(const MountStep& step) {
    const char* name = step.source.c_str();
    // A link in the last place would name another file than the one the server decided on.
    UniqueFd source = *name == '/' ? UniqueFd(open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC))
                                   : OpenInRoot(root_.get(), name, O_PATH | O_NOFOLLOW);
    if (!source && errno == ENOENT && step.optional) return {};
    struct stat info{};
    if (!source || fstat(source.get(), &info) < 0) return Tried("bind", name);
    if (S_ISLNK(info.st_mode)) return Tried("bind", name, "", ELOOP);
    bool directory = S_ISDIR(info.st_mode);
    uint64_t attributes = MOUNT_ATTR_NOSUID;
    if (!step.allow_devices) attributes |= MOUNT_ATTR_NODEV;
    if (step.read_only) attributes |= MOUNT_ATTR_RDONLY;
    if (step.no_exec) attributes |= MOUNT_ATTR_NOEXEC;
    CAISSON_ASSIGN(UniqueFd tree, Clone(source.get(), attributes, directory, name));
    CAISSON_ASSIGN(UniqueFd target, Target(step.target, directory));
    return Attach(tree.get(), target.get(), step.target.c_str(), directory);
  }

  Attempt<void> MountOn(const MountStep& step, NewFilesystem& filesystem, unsigned attributes) {
    CAISSON_ASSIGN(UniqueFd mount, filesystem.Mount(attributes));
    CAISSON_ASSIGN(UniqueFd target, Target(step.target, true));
    return Attach(mount.get(), target.get(), step.target.c_str());
  }

  Attempt<void> Tmpfs(const MountStep& step) {
    NewFilesystem tmpfs("tmpfs");
    if (step.size_bytes != 0) tmpfs.Number("size", "%llu", step.size_bytes);
    if (step.inodes != 0) tmpfs.Number("nr_inodes", "%llu", step.inodes);
    tmpfs.Number("mode", "%llo", step.mode);
    tmpfs.Number("uid", "%llu", Uid(step));
    tmpfs.Number("gid", "%llu", Gid(step));
    unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (step.read_only) attributes |= MOUNT_ATTR_RDONLY;
    if (step.no_exec) attributes |= MOUNT_ATTR_NOEXEC;
    return MountOn(step, tmpfs, attributes);
  }

  Attempt<void> Directory(const MountStep& step) {
    const char* leaf = "";
    CAISSON_ASSIGN(int parent, Parent(step.target, leaf));
    if (mkdirat(parent, leaf, step.mode) < 0) {
      // One that is there already stays as it is.
      if (errno == EEXIST && OpenInRoot(root_.get(), step.target.c_str(), O_PATH | O_DIRECTORY))
        return {};
      return Tried("mkdir", step.target.c_str());
    }
    return Own(parent, leaf, step);
  }

  Attempt<void> Symlink(const MountStep& step) {
    const char* leaf = "";
    CAISSON_ASSIGN(int parent, Parent(step.target, leaf));
    if (symlinkat(step.source.c_str(), parent, leaf) < 0) {
      return Tried("symlink", step.target.c_str());
    }
    return {};
  }

  Attempt<void> File(const MountStep& step) {
    const char* leaf = "";
    CAISSON_ASSIGN(int parent, Parent(step.target, leaf));
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd file(openat(parent, leaf, kFlags, step.mode));
    if (!file) return Tried("create", step.target.c_str());
    for (size_t done = 0; done < step.content.size();) {
      ssize_t wrote = write(file.get(), step.content.data() + done, step.content.size() - done);
      if (wrote < 0) return Tried("write", step.target.c_str());
      done += static_cast<size_t>(wrote);
    }
    return Own(parent, leaf, step);
  }

  Attempt<void> Mask(const MountStep& step) {
    const char* name = step.target.c_str();
    UniqueFd target = OpenInRoot(root_.get(), name, O_PATH);
    if (!target && errno == ENOENT && step.optional) return {};
    struct stat info{};
    if (!target || fstat(target.get(), &info) < 0) return Tried("mask", name);
    constexpr unsigned kEmpty =
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    if (S_ISDIR(info.st_mode)) {
      if (empty_) {
        CAISSON_ASSIGN(UniqueFd again, Clone(empty_.get(), kEmpty, false, name));
        return Attach(again.get(), target.get(), name);
      }
      NewFilesystem tmpfs("tmpfs");
      tmpfs.Text("mode", "0");
      tmpfs.Text("nr_inodes", "1");
      CAISSON_ASSIGN(empty_, tmpfs.Mount(kEmpty));
      return Attach(empty_.get(), target.get(), name);
    }
    // The device itself, whatever lies at its name: a planted link would unmask another file.
    if (!null_) null_.reset(open("/dev/null", O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!null_ || fstat(null_.get(), &info) < 0) return Tried("open", "/dev/null");
    if (!S_ISCHR(info.st_mode) || info.st_rdev != makedev(1, 3)) {
      return Tried("not the null device: /dev/null", "", "", ENODEV);
    }
    CAISSON_ASSIGN(UniqueFd empty, Clone(null_.get(), kEmpty, false, name));
    return Attach(empty.get(), target.get(), name, false);
  }

  Attempt<void> ReadOnly(const MountStep& step) {
    const char* name = step.target.empty() ? "/" : step.target.c_str();
    UniqueFd target = OpenInRoot(root_.get(), step.target.c_str(), O_PATH);
    if (!target && errno == ENOENT && step.optional) return {};
    if (!target) return Tried("read-only", name);
    Attempt<void> done = SetAttributes(target.get(), MOUNT_ATTR_RDONLY, step.recursive, name);
    if (done || done.error().error_number != EINVAL) return done;
    // Not the root of a mount: it is put over itself first.
    CAISSON_ASSIGN(UniqueFd tree, Clone(target.get(), MOUNT_ATTR_RDONLY, step.recursive, name));
    return Attach(tree.get(), target.get(), name);
  }

  Attempt<void> Own(int parent, const char* leaf, const MountStep& step) {
    if (step.uid == 0 && step.gid == 0 && !plan_.user_namespace_first) return {};
    if (fchownat(parent, leaf, Uid(step), Gid(step), AT_SYMLINK_NOFOLLOW) < 0) {
      return Tried("chown", step.target.c_str());
    }
    return {};
  }
  uint32_t Uid(const MountStep& step) const { return SeenAs(plan_, plan_.uid_map, step.uid); }
  uint32_t Gid(const MountStep& step) const { return SeenAs(plan_, plan_.gid_map, step.gid); }

  const LaunchPlan& plan_;
  UniqueFd root_;
  UniqueFd null_;    // opened for the first mask of a file
  UniqueFd empty_;   // mounted for the first mask of a directory; one file system serves all
  UniqueFd parent_;  // of parent_path_
  char parent_path_[4096];
  size_t parent_length_ = 0;
};

}  // namespace

Attempt<UniqueFd> BuildRoot(const LaunchPlan& plan) { return Builder(plan).Build(); }

Attempt<void> PivotTo(int root) {
  if (fchdir(root) < 0) return Tried("chdir", "new root");
  // The old root lands on top of the new one and is taken off at once.
  if (syscall(SYS_pivot_root, ".", ".") < 0) return Tried("pivot_root");
  if (syscall(SYS_umount2, ".", kDetach) < 0) return Tried("umount", "old root");
  if (chdir("/") < 0) return Tried("chdir", "/");
  return {};
}

}  // namespace caisson::launcher
