// Walking a tree in the order of path bytes, without following links.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "guest/glob.h"

namespace caisson::guest {

// What a walk meets. Implementations decide what to enter and when to stop.
class WalkVisitor {
 public:
  virtual ~WalkVisitor() = default;
  struct Entry {
    int directory = -1;        // that holds it
    const std::string& name;
    const std::string& path;   // below the start
    unsigned char type = 0;    // DT_*
    bool matches = false;      // the glob, or true without one
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
  struct Item {
    std::string name;
    unsigned char type = 0;
    bool enter = false;  // this item is the directory's content, not its entry
  };
  bool Directory(int fd, const std::string& prefix, const Glob::State& state, int depth);
  std::vector<Item> ReadItems(int fd);
  bool IsKernelTree(const struct stat& status) const;

  WalkVisitor& visitor_;
  const Glob* glob_;
  const bool hidden_;
  int64_t unreadable_ = 0;
  struct Id {
    dev_t device = 0;
    ino_t inode = 0;
  };
  std::vector<Id> kernel_trees_;  // /proc, /sys, /dev: entered only when the walk starts there
};

}  // namespace caisson::guest
