// Trees as tar archives: packed from the file system and unpacked into it. Blocking; for a worker,
// which is the command user for good.
#pragma once

#include <cstdint>

#include "guest/file_ops.h"
#include "guest/paths.h"

namespace caisson::guest {

struct PackCall {
  FilePath path;  // a directory, whose content it is, or a file
  bool skip_unreadable = false;
};
// Writes the archive to `out`. Nothing is written unless all of it can be read, as far as a look
// beforehand tells. The reply is empty: what counts is that there is one.
FileResult PackTree(const Paths& paths, const PackCall& call, int out);

struct UnpackCall {
  FilePath path;  // a directory that exists
  bool create_only = false;
  int64_t max_entries = 10'000;
  int64_t max_total_bytes = int64_t{1} << 30;
};
// Reads the archive from `in` to its end. What is wrong with one entry is told, and the others go
// on; an archive that is malformed or over a limit ends it, with what was unpacked until then.
FileResult UnpackTree(const Paths& paths, const UnpackCall& call, int in);

}  // namespace caisson::guest
