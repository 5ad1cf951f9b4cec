// The tar format (POSIX.1-2001 ustar and pax, and GNU's long names), as far as files, directories
// and links go. No file system here: bytes in and out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"

namespace caisson::guest {

struct TarEntry {
  enum class Type : uint8_t { kFile, kDirectory, kSymlink, kHardLink, kOther };
  std::string path;  // as it stands there: not checked
  Type type = Type::kFile;
  std::string link;  // of a link: its target, as it stands there
  int64_t size = 0;  // of the data that follows
  uint32_t mode = 0644;
  int64_t modified_s = 0;  // Unix time
};

// Reads an archive from front to back.
class TarReader {
 public:
  // Gives at most `size` bytes, 0 at the end.
  using Source = std::function<Result<size_t>(char* buffer, size_t size)>;
  explicit TarReader(Source source) : source_(std::move(source)) {}

  // The next entry, whatever was left of the one before is skipped; nothing at the archive's end,
  // which its two empty blocks say. kInvalidArgument for what is no archive, or is cut.
  Result<std::optional<TarEntry>> Next();
  // Data of the entry, 0 at its end.
  Result<size_t> Read(char* buffer, size_t size);

 private:
  Result<void> Fill(char* buffer, size_t size);
  Result<void> Skip();
  // The data of an entry that describes the next one, at most 1 MiB.
  Result<std::string> TakeText(int64_t size);

  Source source_;
  int64_t left_ = 0;     // of the entry's data
  int64_t padding_ = 0;  // behind it
};

// What stands before an entry's data: its header, and a pax header where that says too little.
std::string TarHeader(const TarEntry& entry);
// Zeros from the end of `size` bytes of data to the next block.
std::string TarPadding(int64_t size);
// The end of an archive.
std::string TarEnd();

}  // namespace caisson::guest
