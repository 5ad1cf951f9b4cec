// Removal of a directory tree that a sandbox wrote: hostile names, links, depth and modes.
#pragma once

#include <string>

#include "launcher/attempt.h"

namespace caisson::launcher {

// Removes `path` (relative, no "..", below the directory `base`) with everything in it. Nothing is
// reached through a link or on another file system. Missing is success. Takes constant memory and
// three descriptors however deep and wide the tree is; as root, modes do not matter. Whoever still
// writes there can make it fail (ENOTEMPTY), never reach outside.
Attempt<void> RemoveTree(int base, const std::string& path);

}  // namespace caisson::launcher
