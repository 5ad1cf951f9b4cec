// Watching a directory by inotify. Blocking; for a worker, which is the command user for good: what
// the kernel takes its time for (walking a large tree, closing an inotify descriptor) is not the
// loop's.
#pragma once

#include "guest/file_ops.h"
#include "guest/paths.h"

namespace caisson::guest {

struct WatchCall {
  FilePath path;  // a directory
  bool recursive = false;
};
// Writes records to `out`, which becomes non-blocking, until the directory is gone, which is the
// last of them, or nobody reads them any more. An error comes before the first record: kOverloaded
// when the kernel gives no more watches, kNotSupported when it has none; or after some, when they
// cannot go on.
FileResult WatchTree(const Paths& paths, const WatchCall& call, int out);

}  // namespace caisson::guest
