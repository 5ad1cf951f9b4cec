// glob and grep over a tree. Plain blocking functions, run in a worker child with the command
// user's real identity: what they see is what that user may see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "guest/file_ops.h"
#include "guest/glob.h"
#include "guest/paths.h"

namespace caisson::guest {

struct GlobCall {
  FilePath path;
  std::string pattern;
  size_t limit = 10'000;
  bool bare_any_depth = true;
  bool directories = false;
  bool hidden = false;
  int64_t stop_ms = INT64_MAX;  // monotonic: what was found by then is given
};

struct GrepCall {
  FilePath path;
  std::string pattern;  // literal bytes
  std::string glob;     // of the files' paths below `path`; empty: all
  bool ignore_case = false;  // of ASCII letters
  bool hidden = true;
  size_t limit = 1'000;
  size_t limit_per_file = SIZE_MAX;
  size_t max_line_bytes = 2'000;
  int64_t stop_ms = INT64_MAX;
};

FileResult GlobSearch(const Paths& paths, const GlobCall& call);
FileResult GrepSearch(const Paths& paths, const GrepCall& call);

}  // namespace caisson::guest
