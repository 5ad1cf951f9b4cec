// What a guest is started with: the descriptors and variables of protocol.h, section "Start-up".
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/protocol.h"

namespace caisson::guest {

// Whom commands run as, and with whose authority files are touched.
struct CommandUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
  std::string name;
  std::string home;
  std::string shell;
};

// Of a read-only set.
struct SetPlace {
  std::string path;   // where commands see it: a link to `current` in the store
  std::string store;  // a directory of the guest's own
};

struct Config {
  CommandUser user;
  std::string work_dir;                    // absolute
  std::map<std::string, std::string> env;  // added to every command's environment
  BatchLimits upload;                      // the caps of many files in one call
  BatchLimits download;
  std::vector<SetPlace> sets;
  std::string token;

  UniqueFd listen;
  UniqueFd filter;  // optional, like all below
  UniqueFd cgroup;
  UniqueFd mem_events;
  UniqueFd spawner;
  UniqueFd sync;
};

// Reads and removes the CAISSON_GUEST_* variables; every named descriptor is then close-on-exec.
// kInvalidConfig with a message that names the variable or field. `sync` is set, if it was named,
// even when the rest fails, so that the failure can be told there.
Result<void> ReadConfig(Config& config);
// The same for `caisson-guest spawn`, which has the user, the filter and `spawner` only.
Result<void> ReadSpawnerConfig(Config& config);
// The JSON of CAISSON_GUEST_CONFIG_FD.
Result<void> ParseConfig(std::string_view text, Config& config);

}  // namespace caisson::guest
