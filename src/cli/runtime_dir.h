// Where the sockets and small files of live sandboxes are: in memory if the host offers that, since
// what they describe ends with the host's uptime too. Paths are short there, as sockets need them.
#pragma once

#include <string>

#include "base/error.h"

namespace caisson::cli {

// As root the first of /run and /dev/shm that is memory and writable; empty when none is. Not for
// other users: what they have in memory is removed when they log out, and a server may live on.
std::string RuntimeBase();

// One for each data directory (which exists): <base>/caisson-<digest of its path>, or
// <data_dir>/local without a base.
Result<std::string> RuntimeDirOf(const std::string& data_dir);

}  // namespace caisson::cli
