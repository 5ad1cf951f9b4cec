#include "guest/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace caisson::guest {
namespace {

constexpr int kMaxDepth = 256;

unsigned char TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return DT_REG;
  if (S_ISDIR(mode)) return DT_DIR;
  return S_ISLNK(mode) ? DT_LNK : DT_FIFO;
}

}  // namespace

Walker::Walker(WalkVisitor& visitor, const Glob* glob, bool hidden)
    : visitor_(visitor), glob_(glob), hidden_(hidden) {
  for (const char* tree : {"/proc", "/sys", "/dev"}) {
    struct stat status{};
    if (::stat(tree, &status) == 0) kernel_trees_.push_back({status.st_dev, status.st_ino});
  }
}

bool Walker::IsKernelTree(const struct stat& status) const {
  for (const Id& id : kernel_trees_) {
    if (id.device == status.st_dev && id.inode == status.st_ino) return true;
  }
  return false;
}

bool Walker::Run(UniqueFd start) {
  return Directory(start.get(), {}, glob_ == nullptr ? Glob::State() : glob_->Start(), 0);
}

std::vector<Walker::Item> Walker::ReadItems(int fd) {
  std::vector<Item> items;
  int copy = ::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = copy < 0 ? nullptr : ::fdopendir(copy);
  if (list == nullptr) {
    if (copy >= 0) ::close(copy);
    unreadable_++;
    return items;
  }
  while (dirent* entry = ::readdir(list)) {
    std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    unsigned char type = entry->d_type;
    struct stat status{};
    if (type == DT_UNKNOWN && ::fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
      type = TypeOf(status.st_mode);
    }
    items.push_back(Item{std::string(name), type, false});
    if (type == DT_DIR) items.push_back(Item{std::string(name) + "/", type, true});
    if (items.size() % 4096 < 2 && visitor_.OutOfTime()) break;
  }
  ::closedir(list);
  // "a", "a-b", "a/c": a directory's content comes where its paths do, not behind its own entry.
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.name < b.name; });
  return items;
}

bool Walker::Directory(int fd, const std::string& prefix, const Glob::State& state, int depth) {
  for (Item& item : ReadItems(fd)) {
    if (visitor_.OutOfTime()) return false;
    std::string_view name = item.name;
    if (item.enter) name.remove_suffix(1);
    Glob::Outcome outcome;
    outcome.matches = true;
    if (glob_ != nullptr) outcome = glob_->Step(state, name);
    if (!item.enter) {
      std::string path = prefix + item.name;
      if (!visitor_.Visit({fd, item.name, path, item.type, outcome.matches})) return false;
      continue;
    }
    if (glob_ != nullptr ? outcome.below.empty() : (!hidden_ && name.starts_with('.'))) continue;
    UniqueFd below(::openat(fd, item.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!below || depth >= kMaxDepth || ::fstat(below.get(), &status) != 0) {
      unreadable_++;
      continue;
    }
    if (IsKernelTree(status)) continue;
    if (!Directory(below.get(), prefix + item.name, outcome.below, depth + 1)) return false;
  }
  return true;
}

}  // namespace caisson::guest
