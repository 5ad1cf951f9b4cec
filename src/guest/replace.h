// Replacing a file's content so that readers see the old or the new file, never a part: a
// temporary file beside it, then a rename. Run under the command user's identity.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/identity.h"
#include "guest/paths.h"
#include "guest/sha256.h"

namespace caisson::guest {

// A name that nobody else uses, for content that is not whole yet; and whether a name is one.
std::string TemporaryName();
bool IsTemporaryName(std::string_view name);

struct ReplaceOptions {
  std::optional<uint32_t> mode;  // default: the existing file's, else 0644
  bool create_only = false;
  bool parents = false;
};

class FileReplacement {
 public:
  // Checks the target: it is absent, or a regular file that the user may write. Follows links.
  // `identity` set: its powers may be used to keep a foreign owner of a file that the user may
  // write, which in-place writing would keep too.
  static Result<FileReplacement> Begin(const Paths& paths, const FilePath& path,
                                       const ReplaceOptions& options, const Identity* identity);
  FileReplacement(FileReplacement&&) = default;
  FileReplacement& operator=(FileReplacement&&) = delete;
  // Without Commit the temporary file is removed; run it under the identity too.
  ~FileReplacement();

  bool existed() const { return existing_.has_value(); }
  // The existing file, open for reading; for hashing.
  Result<UniqueFd> OpenExisting() const;
  // Fails with kPreconditionFailed if the target is another file, or another content, than at
  // Begin.
  Result<void> CheckUnchanged() const;
  Result<void> Write(std::string_view bytes);
  Result<void> Commit();

  uint64_t size() const { return size_; }
  std::string HexDigest() { return hash_.HexDigest(); }

 private:
  FileReplacement() = default;
  Result<void> KeepOwner();
  void KeepAttributes();

  Paths::Place place_;
  ReplaceOptions options_;
  const Identity* identity_ = nullptr;
  std::optional<struct stat> existing_;
  std::string temporary_;  // empty once renamed
  UniqueFd file_;
  uint64_t size_ = 0;
  Sha256 hash_;
};

}  // namespace caisson::guest
