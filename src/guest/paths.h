// Resolving the paths of file and search calls: always in one operation of the kernel (openat2,
// Linux 5.6), from a held directory, without magic links. Run under the command user's identity.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/json.h"

namespace caisson::guest {

enum class PathRoot : uint8_t { kSandbox, kWorkDir };

// A path as a caller gave it.
struct FilePath {
  std::string text;
  PathRoot root = PathRoot::kSandbox;
};

// A failed call on a file: the errno's code, and its name where the reply wants it.
Error FileError(int error_number, std::string_view tried);

// kInvalidPath for what no call accepts (see section 3 of the document).
Result<void> CheckPath(const FilePath& path);
Result<PathRoot> ParseRoot(std::string_view name);  // "" is sandbox
// `base` + "/" + `name`, as it is shown to callers.
std::string JoinPath(std::string_view base, std::string_view name);
std::string_view LastComponent(std::string_view path);

class Paths {
 public:
  // `work_dir` is held from here on. kHostUnsupported before Linux 5.6.
  static Result<Paths> Open(const std::string& work_dir);

  // openat2 with O_CLOEXEC. EXDEV becomes `outside_root`.
  Result<UniqueFd> OpenAny(const FilePath& path, int flags) const;
  // A regular file, for reading, never waiting: others are refused before they are opened.
  Result<UniqueFd> OpenRegular(const FilePath& path, struct stat& status) const;
  Result<UniqueFd> OpenDirectory(const FilePath& path) const;
  // One below an open directory, reached through no link.
  static Result<UniqueFd> OpenBelow(int directory, const std::string& path);

  // The directory that holds the path's last component, and that component. With `follow`, a last
  // component that is a link is replaced by its target until it is none.
  struct Place {
    UniqueFd directory;
    std::string name;
  };
  Result<Place> Locate(const FilePath& path, bool follow) const;
  // Makes the missing directories above the last component.
  Result<void> MakeParents(const FilePath& path) const;

  // The root or the work directory: not to be removed or moved.
  bool IsProtected(const struct stat& status) const;
  int work_dir_fd() const { return work_dir_.get(); }

 private:
  Result<UniqueFd> Resolve(PathRoot root, const std::string& text, uint64_t flags) const;

  UniqueFd work_dir_;
  struct Id {
    dev_t device = 0;
    ino_t inode = 0;
  };
  Id root_id_;
  Id work_id_;
};

// An entry of section 6, into an open JSON object.
void WriteEntry(JsonWriter& json, std::string_view path, std::string_view name,
                const struct stat& status, const std::string* target);
// Of its modification, in Unix milliseconds.
int64_t ModifiedAtMs(const struct stat& status);
// readlink of `name` in `directory` ("" for the descriptor itself); empty when it cannot be read.
std::string ReadLink(int directory, const char* name);

}  // namespace caisson::guest
