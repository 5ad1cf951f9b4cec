// What this host can enforce for local sandboxes, each lack with its reason.
//
// ProbeHost() looks and tries; it changes nothing. PrepareCgroups() then makes what the decision
// needs, once, before the first sandbox. Both run in the server, with the rights that the launcher
// will have (it is the server's child).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "launcher/plan.h"
#include "sandbox/spec.h"

namespace caisson::sandbox::local {

// Something the host has (`reason` empty) or lacks.
struct Ability {
  bool available = false;
  std::string reason;  // why not, for an operator
};

// Changes to the v2 tree that let sandboxes have controllers. Processes may sit only in leaves, so
// those of the parent directory move to a leaf first.
struct CgroupPreparation {
  std::vector<std::string> make;                            // directories; existing ones are fine
  std::string move_from;                                    // every process of this directory ...
  std::string move_to;                                      // ... goes to this one; empty: none
  std::vector<std::pair<std::string, std::string>> writes;  // file, value
};

// Where the cgroup directories of sandboxes are made; empty: nowhere.
struct CgroupFacts {
  std::string v2_parent;
  bool v2_memory = false;
  bool v2_cpu = false;
  bool v2_pids = false;
  // v1 hierarchies, used for what v2 does not have.
  std::string v1_memory;
  std::string v1_cpu;
  std::string v1_pids;
  std::string v1_freezer;
  CgroupPreparation preparation;
  // Enforcement of each limit, and the tree that tells one command's processes from another's.
  Ability memory;
  Ability cpu;
  Ability pids;
  Ability tree;
};

// The host's own root, as far as a sandbox without an image is made of it.
struct HostLayout {
  struct Entry {
    std::string name;
    std::string link;  // text of a symbolic link; empty: a file or directory
  };
  std::vector<Entry> top;  // of bin, sbin, lib, lib32, lib64, libx32 those that are there
  std::vector<Entry> etc;  // of the few files of /etc that are passed on
};

struct IdRange {
  uint32_t first = 0;
  uint64_t count = 0;
};

struct HostFacts {
  bool root = false;        // all capabilities that the rooted way takes
  std::string root_reason;  // why not
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<IdRange> own_ids;  // uids that exist in the server's user namespace
  Ability namespaces;            // tried: all of a sandbox's, in the order it would take
  CgroupFacts cgroups;
  Ability seccomp;
  Ability landlock;
  int landlock_abi = 0;
  uint64_t max_open_files = 0;  // the hard limit
  HostLayout layout;
};

// `launcher` is the path of caisson-launcher, which makes the namespaces. Blocks for some
// milliseconds.
HostFacts ProbeHost(const std::string& launcher);

// Makes the parent directory of sandboxes ready. Idempotent.
Result<void> PrepareCgroups(const CgroupPreparation& preparation);

// The highest rung that local sandboxes have here; kNone when they cannot be made.
Isolation IsolationOf(const HostFacts& facts);

// How ChooseCgroups() sees files; for tests.
struct CgroupView {
  std::function<std::string(const std::string& path)> read;  // empty when unreadable
  std::function<bool(const std::string& path)> writable;
  std::function<bool(const std::string& path)> delegated;  // by systemd's mark
};
// The decision, from the texts of /proc/self/mountinfo and /proc/self/cgroup.
CgroupFacts ChooseCgroups(std::string_view mountinfo, std::string_view self_cgroup,
                          const CgroupView& view, bool root);

}  // namespace caisson::sandbox::local
