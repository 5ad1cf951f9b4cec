// An image directory as a root, without changing it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/plan.h"

namespace caisson::sandbox::local {

// Steps that show `rootfs` below a fresh root: its entries are bound in, read-only. `own` are the
// relative paths that the sandbox has for itself; they are left out, and a directory on the way to
// one is made anew and its other entries are bound in one by one. So a mount point may be missing
// in the image, and the image may be on a read-only file system. Device nodes, sockets and pipes of
// the image are left out.
// kInvalidArgument: no directory; a link or file of the image stands on the way to an own path; or
// over 2,000 entries would have to be bound.
Result<std::vector<launcher::MountStep>> MirrorRootfs(const std::string& rootfs,
                                                      const std::set<std::string>& own);

// The content of a small file of the image ("etc/passwd"), never through a link; empty: none.
std::string ReadRootfsFile(const std::string& rootfs, const std::string& path);

}  // namespace caisson::sandbox::local
