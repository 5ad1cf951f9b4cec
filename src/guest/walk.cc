#include "guest/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace caisson::guest {
namespace {

constexpr int kMaxDepth = 256;
constexpr size_t kListBytes = 32 * 1024;

unsigned char TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return DT_REG;
  if (S_ISDIR(mode)) return DT_DIR;
  return S_ISLNK(mode) ? DT_LNK : DT_FIFO;
}

}  // namespace

KernelTrees::KernelTrees() {
  for (const char* tree : {"/proc", "/sys", "/dev"}) {
    struct stat status{};
    if (::stat(tree, &status) == 0) ids_.push_back({status.st_dev, status.st_ino});
  }
}

bool KernelTrees::Contains(const struct stat& status) const {
  for (const Id& id : ids_) {
    if (id.device == status.st_dev && id.inode == status.st_ino) return true;
  }
  return false;
}

// getdents64 itself: few calls for many entries, and no second descriptor.
long ReadEntries(int directory, std::string& buffer, const OnEntry& on_entry) {
  // As the kernel writes it; the name goes on behind.
  struct Record {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    unsigned char type;
    char name[5];
  };
  buffer.resize(kListBytes);
  long got = ::syscall(SYS_getdents64, directory, buffer.data(), buffer.size());
  for (long at = 0; at < got;) {
    const char* start = buffer.data() + at;
    Record record;
    std::memcpy(&record, start, sizeof record);
    at += record.size;
    const char* text = start + offsetof(Record, name);
    std::string_view name = text;
    if (name == "." || name == "..") continue;
    struct stat status{};
    if (record.type == DT_UNKNOWN &&
        ::fstatat(directory, text, &status, AT_SYMLINK_NOFOLLOW) == 0) {
      record.type = TypeOf(status.st_mode);
    }
    on_entry(name, record.type);
  }
  return got;
}

Walker::Walker(WalkVisitor& visitor, const Glob* glob, bool hidden)
    : visitor_(visitor), glob_(glob), hidden_(hidden) {}

bool Walker::Run(UniqueFd start) {
  return Directory(start.get(), glob_ == nullptr ? Glob::State() : glob_->Start(), 0);
}

Walker::Listing Walker::Read(int fd) {
  Listing listing;
  for (;;) {
    long got = ReadEntries(fd, buffer_, [&](std::string_view name, unsigned char type) {
      Item item{static_cast<uint32_t>(listing.names.size()), static_cast<uint32_t>(name.size()),
                type, false};
      listing.names.append(name.data(), name.size() + 1);
      listing.items.push_back(item);
      item.content = true;
      if (item.type == DT_DIR) listing.items.push_back(item);
    });
    if (got < 0) unreadable_++;
    if (got <= 0 || visitor_.OutOfTime()) break;
  }
  // "a", "a-b", "a/c": a directory's content comes where its paths do, not behind its own entry.
  auto start_of = [&](const Item& item, size_t size) {
    return std::string_view(listing.names).substr(item.name, size);
  };
  std::sort(listing.items.begin(), listing.items.end(), [&](const Item& a, const Item& b) {
    size_t common = std::min(a.length, b.length);
    int order = start_of(a, common).compare(start_of(b, common));
    if (order != 0) return order < 0;
    // One name is the start of the other, or both are the same.
    auto next = [&](const Item& item) {
      if (item.length == common) return item.content ? int{'/'} : -1;
      return int{static_cast<uint8_t>(listing.names[item.name + common])};
    };
    return next(a) < next(b);
  });
  return listing;
}

bool Walker::Directory(int fd, const Glob::State& state, int depth) {
  Listing listing = Read(fd);
  size_t prefix = path_.size();
  for (const Item& item : listing.items) {
    if (visitor_.OutOfTime()) return false;
    const char* name = listing.names.data() + item.name;
    std::string_view text(name, item.length);
    path_.resize(prefix);
    path_ += text;
    if (!item.content) {
      bool matches = glob_ == nullptr || glob_->MatchesEntry(state, text);
      if (!visitor_.Visit({fd, name, path_, item.type, matches})) return false;
      continue;
    }
    Glob::State below;
    if (glob_ != nullptr) below = glob_->Below(state, text);
    if (glob_ != nullptr ? below.empty() : !hidden_ && text.starts_with('.')) continue;
    path_ += '/';
    if (!Content(fd, name, below, depth)) return false;
  }
  path_.resize(prefix);
  return true;
}

bool Walker::Content(int fd, const char* name, const Glob::State& state, int depth) {
  UniqueFd below(::openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!below || depth >= kMaxDepth || ::fstat(below.get(), &status) != 0) {
    unreadable_++;
    return true;
  }
  return kernel_trees_.Contains(status) || Directory(below.get(), state, depth + 1);
}

}  // namespace caisson::guest
