// POST /v1/files/copy: a file, a link or a tree. A plain function that blocks; for a worker, which
// is the command user for good.
#pragma once

#include "guest/file_ops.h"
#include "guest/paths.h"

namespace caisson::guest {

struct CopyCall {
  FilePath from;
  FilePath to;
  bool overwrite = false;  // a file that is there
  bool recursive = false;  // a directory, with what is in it
};
FileResult CopyFiles(const Paths& paths, const CopyCall& call);

}  // namespace caisson::guest
