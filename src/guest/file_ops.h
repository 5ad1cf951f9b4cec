// The file calls that end in one step: stat, list, lines, edit, mkdir, move, remove. Plain
// functions that block while the file system does; run under the command user's identity, in the
// loop for small work or in a worker for large.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "guest/lines.h"
#include "guest/paths.h"
#include "guest/replace.h"

namespace caisson::guest {

// A reply in the making. `path` goes into an error's body.
struct FileReply {
  std::string body;  // JSON, or raw when `meta` is set
  std::optional<std::string> meta;
};
using FileResult = Result<FileReply>;

// More than this is a worker's, not the loop's.
inline constexpr int64_t kLoopBytes = 1024 * 1024;
inline constexpr size_t kLoopEntries = 2'000;
// What `edit` and `lines` accept at all.
inline constexpr int64_t kMaxTextFileBytes = int64_t{256} * 1024 * 1024;

struct ListRequest {
  FilePath path;
  size_t limit = 1000;
  std::string after;
  size_t max_scan = SIZE_MAX;  // more entries than this: kOverloaded, for a worker to do instead
};

struct StatRequest {
  FilePath path;
  bool follow = false;
  bool media_type = false;  // of a regular file, which is read for it
};

FileResult StatFile(const Paths& paths, const StatRequest& request);
FileResult ListDirectory(const Paths& paths, const ListRequest& request);
FileResult MakeDirectory(const Paths& paths, const FilePath& path, bool parents,
                         std::optional<uint32_t> mode);
FileResult MoveFile(const Paths& paths, const FilePath& from, const FilePath& to, bool overwrite);
FileResult RemoveFile(const Paths& paths, const FilePath& path, bool recursive, bool missing_ok);
FileResult FileLines(const Paths& paths, const FilePath& path, const LineWindowRequest& request);

struct EditCall {
  FilePath path;
  EditRequest edit;
  std::string if_match;
  bool dry_run = false;
};
// `identity`: see FileReplacement::Begin; null in a worker.
FileResult EditFile(const Paths& paths, const EditCall& call, const Identity* identity);

// The size of the file that `lines` or `edit` would read; 0 when it cannot be told.
int64_t SizeOf(const Paths& paths, const FilePath& path);
// Whether a removal is one system call.
bool IsPlainRemoval(const Paths& paths, const FilePath& path);

}  // namespace caisson::guest
