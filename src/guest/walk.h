// Walking a tree in the order of path bytes, without following links.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "guest/glob.h"

namespace caisson::guest {

// /proc, /sys and /dev: entered only by who starts there.
class KernelTrees {
 public:
  KernelTrees();
  bool Contains(const struct stat& status) const;

 private:
  struct Id {
    dev_t device = 0;
    ino_t inode = 0;
  };
  std::vector<Id> ids_;
};

// Reads on in an open directory, by one call of the kernel: its entries but "." and "..", each with
// a NUL behind its name, and their DT_*. 0 at the end, negative when it cannot be read.
using OnEntry = std::function<void(std::string_view name, unsigned char type)>;
long ReadEntries(int directory, std::string& buffer, const OnEntry& on_entry);

// What a walk meets. Implementations decide when to stop.
class WalkVisitor {
 public:
  virtual ~WalkVisitor() = default;
  struct Entry {
    int directory = -1;      // that holds it
    const char* name;        // in it
    std::string_view path;   // below the start
    unsigned char type = 0;  // DT_*
    bool matches = false;    // the glob, or true without one
  };
  // False stops the walk.
  virtual bool Visit(const Entry& entry) = 0;
  virtual bool OutOfTime() = 0;
};

class Walker {
 public:
  // `glob` null: everything matches. `hidden`: dot directories are entered though no glob says so.
  Walker(WalkVisitor& visitor, const Glob* glob, bool hidden);

  // From an open directory. False when the visitor stopped it.
  bool Run(UniqueFd start);
  int64_t unreadable() const { return unreadable_; }

 private:
  // The entries of one directory. A directory among them comes twice: as an entry, and as its
  // content, which is sorted as "name/".
  struct Item {
    uint32_t name = 0;    // in `names`, with a NUL behind it
    uint32_t length = 0;  // of the content: without the '/'
    unsigned char type = 0;
    bool content = false;
  };
  struct Listing {
    std::string names;
    std::vector<Item> items;
  };
  bool Directory(int fd, const Glob::State& state, int depth);
  bool Content(int fd, const char* name, const Glob::State& state, int depth);
  Listing Read(int fd);

  WalkVisitor& visitor_;
  const Glob* glob_;
  const bool hidden_;
  int64_t unreadable_ = 0;
  std::string path_;    // of the entry at hand, below the start
  std::string buffer_;  // of Read
  const KernelTrees kernel_trees_;
};

}  // namespace caisson::guest
