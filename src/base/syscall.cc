#include "base/syscall.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace caisson {

Result<UniqueFd> OpenFile(const std::string& path, int flags, uint32_t mode) {
  return OpenFileAt(AT_FDCWD, path.c_str(), flags, mode);
}

Result<UniqueFd> OpenFileAt(int dir_fd, const char* path, int flags, uint32_t mode) {
  for (;;) {
    int fd = ::openat(dir_fd, path, flags | O_CLOEXEC, mode);
    if (fd >= 0) return UniqueFd(fd);
    if (errno == EINTR) continue;
    return Fail(ErrnoError(errno, std::string("open ") + path));
  }
}

Result<void> WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return Fail(ErrnoError(errno, "write"));
    }
    data.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

namespace {

// `read_some(buffer, size, offset)` is read(2) or pread(2).
template <typename ReadSome>
Result<std::string> ReadUpTo(size_t limit, ReadSome read_some) {
  // Most are small and never need more than this: a buffer of the heap costs its pages each time.
  char first[2048];
  std::string content;  // once they do not fit
  size_t used = 0;
  for (;;) {
    // One byte over the limit is asked for, so that a file of exactly `limit` bytes is accepted.
    bool small = used < sizeof first;
    size_t room = small ? sizeof first - used : std::min(used, size_t{64} * 1024);
    size_t want = std::min(limit + 1 - used, room);
    if (!small) content.resize(used + want);
    ssize_t got = read_some((small ? first : content.data()) + used, want, used);
    if (got < 0) {
      if (errno == EINTR) continue;
      return Fail(ErrnoError(errno, "read"));
    }
    used += static_cast<size_t>(got);
    if (used > limit) return Fail(ErrorCode::kFileTooLarge, "the content exceeds its limit");
    if (small && (got == 0 || used == sizeof first)) content.assign(first, used);
    if (got == 0) {
      content.resize(used);
      return content;
    }
  }
}

}  // namespace

Result<std::string> ReadAll(int fd, size_t limit) {
  return ReadUpTo(limit,
                  [fd](char* buffer, size_t size, size_t) { return ::read(fd, buffer, size); });
}

Result<std::string> ReadFromStart(int fd, size_t limit) {
  return ReadUpTo(limit, [fd](char* buffer, size_t size, size_t offset) {
    return ::pread(fd, buffer, size, static_cast<off_t>(offset));
  });
}

Result<std::string> ReadWholeFile(const std::string& path, size_t limit) {
  CAISSON_ASSIGN(UniqueFd fd, OpenFile(path, O_RDONLY));
  auto content = ReadAll(fd.get(), limit);
  if (!content) content.error().message = path + ": " + content.error().message;
  return content;
}

Result<void> WriteControlFile(const std::string& path, std::string_view data) {
  CAISSON_ASSIGN(UniqueFd fd, OpenFile(path, O_WRONLY));
  for (;;) {
    ssize_t written = ::write(fd.get(), data.data(), data.size());
    if (written >= 0) return {};
    if (errno == EINTR) continue;
    return Fail(ErrnoError(errno, "write " + path));
  }
}

Result<Pipe> MakePipe(int flags) {
  int fds[2];
  if (::pipe2(fds, flags | O_CLOEXEC) != 0) return Fail(ErrnoError(errno, "pipe2"));
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Result<UniqueFd> MakeSealedMemFd(const char* name, std::string_view content) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return Fail(ErrnoError(errno, "memfd_create"));
  CAISSON_TRY(WriteAll(fd.get(), content));
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return Fail(ErrnoError(errno, "lseek memfd"));
  constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Fail(ErrnoError(errno, "seal memfd"));
  return fd;
}

}  // namespace caisson
