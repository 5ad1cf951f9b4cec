// Thin wrappers that retry EINTR and give Results. Freestanding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"

namespace caisson {

// open(2) with O_CLOEXEC added. `path` must not contain NUL.
Result<UniqueFd> OpenFile(const std::string& path, int flags, uint32_t mode = 0);
// openat(2) with O_CLOEXEC added; `tried` names the object in the error.
Result<UniqueFd> OpenFileAt(int dir_fd, const char* path, int flags, uint32_t mode = 0);
// Writes all of `data`, across partial writes. Blocks if the descriptor does.
Result<void> WriteAll(int fd, std::string_view data);
// Reads until end of file, at most `limit` bytes; kFileTooLarge beyond.
Result<std::string> ReadAll(int fd, size_t limit);
// The same for a file from its beginning, whatever its position is, and leaving that as it is: for
// a descriptor that several processes share.
Result<std::string> ReadFromStart(int fd, size_t limit);
// Opens, reads, closes. For small host files: /proc, /sys, configuration.
Result<std::string> ReadWholeFile(const std::string& path, size_t limit = 1 << 20);
// Opens an existing file and writes `data` in one write(2): control files of cgroups and /proc.
Result<void> WriteControlFile(const std::string& path, std::string_view data);

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
// pipe2(2) with O_CLOEXEC and `flags`.
Result<Pipe> MakePipe(int flags = 0);
// An anonymous file holding `content`, positioned at its start, sealed against change.
Result<UniqueFd> MakeSealedMemFd(const char* name, std::string_view content);

}  // namespace caisson
