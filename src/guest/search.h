// glob and grep (grep.cc) over a tree. Plain blocking functions, run in a worker child with the
// command user's real identity: what they see is what that user may see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "guest/file_ops.h"
#include "guest/json.h"
#include "guest/paths.h"
#include "guest/walk.h"

namespace caisson::guest {

struct GlobCall {
  FilePath path;
  std::string pattern;
  size_t limit = 10'000;
  bool bare_any_depth = true;
  bool directories = false;
  bool files_only = false;  // regular files and links to them
  bool hidden = false;
  bool bare_dot_directories = false;
  bool relative = false;        // paths below `path` instead of joined with it
  int64_t stop_ms = INT64_MAX;  // monotonic: what was found by then is given
};

struct GrepCall {
  FilePath path;
  std::string pattern;
  bool regex = false;        // else literal bytes
  std::string glob;          // of the files' paths below `path`; empty: all
  bool ignore_case = false;  // of ASCII letters
  bool hidden = true;
  bool relative = false;
  int64_t before = 0;  // lines of context
  int64_t after = 0;
  size_t limit = 1'000;  // of matches, without context
  size_t limit_per_file = SIZE_MAX;
  size_t max_line_bytes = 2'000;
  int64_t stop_ms = INT64_MAX;
};

// Why a search stopped early, and what it has written so far. Both searches are made of it.
class Search : public WalkVisitor {
 public:
  Search(size_t limit, int64_t stop_ms) : limit_(limit), stop_ms_(stop_ms) {}

  bool OutOfTime() override;

 protected:
  // The next call of OutOfTime looks at the clock.
  void LookAtClock() { calls_ |= 15; }
  // Whether one more match may be written; the first that may not is what makes it truncated.
  bool Admit();
  // Whether the reply has room.
  bool HasRoom();
  bool Stopped() const { return reason_ != nullptr; }
  void WriteReason();

  JsonWriter json_;

 private:
  const size_t limit_;
  const int64_t stop_ms_;
  size_t found_ = 0;
  uint64_t calls_ = 0;
  const char* reason_ = nullptr;
};

FileResult GlobSearch(const Paths& paths, const GlobCall& call);
FileResult GrepSearch(const Paths& paths, const GrepCall& call);

}  // namespace caisson::guest
