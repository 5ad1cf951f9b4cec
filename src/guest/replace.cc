#include "guest/replace.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/syscall.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr unsigned kRenameNoReplace = 1;  // RENAME_NOREPLACE
constexpr size_t kMaxAttributeBytes = 64 * 1024;

constexpr std::string_view kTemporaryStart = ".caisson-";
constexpr std::string_view kTemporaryEnd = ".tmp";
constexpr size_t kRandomBytes = 12;

}  // namespace

std::string TemporaryName() {
  uint8_t random[kRandomBytes] = {};
  (void)!::getrandom(random, sizeof random, 0);
  std::string name(kTemporaryStart);
  name += HexEncode(random, sizeof random);
  name += kTemporaryEnd;
  return name;
}

bool IsTemporaryName(std::string_view name) {
  return name.size() == kTemporaryStart.size() + 2 * kRandomBytes + kTemporaryEnd.size() &&
         name.starts_with(kTemporaryStart) && name.ends_with(kTemporaryEnd);
}

Result<FileReplacement> FileReplacement::Begin(const Paths& paths, const FilePath& path,
                                               const ReplaceOptions& options,
                                               const Identity* identity) {
  if (path.text.ends_with('/')) return Fail(FileError(EISDIR, "write"));
  if (options.parents) CAISSON_TRY(paths.MakeParents(path));
  FileReplacement replacement;
  CAISSON_ASSIGN(replacement.place_, paths.Locate(path, true));
  replacement.options_ = options;
  replacement.identity_ = identity;
  int directory = replacement.place_.directory.get();
  const char* name = replacement.place_.name.c_str();
  struct stat status{};
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(status.st_mode)) return Fail(FileError(EISDIR, "write"));
    if (options.create_only) return Fail(FileError(EEXIST, "create"));
    if (!S_ISREG(status.st_mode)) {
      return Fail(ErrorCode::kNotARegularFile, "it is not a regular file");
    }
    // As with a shell's redirection, a file that is read-only for the user stays as it is.
    UniqueFd writable(
        ::openat(directory, name, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    if (!writable) return Fail(FileError(errno, "write"));
    replacement.existing_ = status;
  } else if (errno != ENOENT) {
    return Fail(FileError(errno, "stat"));
  }
  replacement.temporary_ = TemporaryName();
  replacement.file_.reset(::openat(directory, replacement.temporary_.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!replacement.file_) {
    int error = errno;
    replacement.temporary_.clear();
    return Fail(FileError(error, "create"));
  }
  return replacement;
}

FileReplacement::~FileReplacement() {
  if (!temporary_.empty() && place_.directory) {
    ::unlinkat(place_.directory.get(), temporary_.c_str(), 0);
  }
}

Result<UniqueFd> FileReplacement::OpenExisting() const {
  UniqueFd fd(::openat(place_.directory.get(), place_.name.c_str(),
                       O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  if (!fd) return Fail(FileError(errno, "open"));
  return fd;
}

Result<void> FileReplacement::CheckUnchanged() const {
  struct stat now{};
  bool there =
      ::fstatat(place_.directory.get(), place_.name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0;
  if (there && existing_ && now.st_ino == existing_->st_ino && now.st_dev == existing_->st_dev &&
      now.st_size == existing_->st_size && now.st_mtim.tv_sec == existing_->st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == existing_->st_mtim.tv_nsec) {
    return {};
  }
  return Fail(ErrorCode::kPreconditionFailed, "the file changed meanwhile");
}

Result<void> FileReplacement::Write(std::string_view bytes) {
  hash_.Update(bytes);
  size_ += bytes.size();
  auto written = WriteAll(file_.get(), bytes);
  if (!written) return Fail(FileError(errno, "write"));
  return {};
}

Result<void> FileReplacement::KeepOwner() {
  struct stat now{};
  if (::fstat(file_.get(), &now) != 0) return Fail(FileError(errno, "stat"));
  if (now.st_uid == existing_->st_uid && now.st_gid == existing_->st_gid) return {};
  if (::fchown(file_.get(), existing_->st_uid, existing_->st_gid) == 0) return {};
  if (errno == EPERM && identity_ != nullptr && identity_->switches()) {
    uid_t uid = static_cast<uid_t>(::setfsuid(0));
    int result = ::fchown(file_.get(), existing_->st_uid, existing_->st_gid);
    int error = errno;
    ::setfsuid(uid);
    if (result == 0) return {};
    errno = error;
  }
  return Fail(FileError(errno, "keep the owner"));
}

void FileReplacement::KeepAttributes() {
  auto source = OpenExisting();
  if (!source) return;
  std::string names(kMaxAttributeBytes, '\0');
  ssize_t size = ::flistxattr(source->get(), names.data(), names.size());
  if (size <= 0) return;
  std::string value(kMaxAttributeBytes, '\0');
  for (size_t at = 0; at < static_cast<size_t>(size);) {
    const char* text = names.c_str() + at;  // each ends with its NUL
    std::string_view name(text);
    at += name.size() + 1;
    // Capabilities belong to a content, and go with it as they do when a file is written in place.
    if (!name.starts_with("user.") && name != "system.posix_acl_access") continue;
    ssize_t got = ::fgetxattr(source->get(), text, value.data(), value.size());
    if (got >= 0) {
      ::fsetxattr(file_.get(), text, value.data(), static_cast<size_t>(got), 0);
    }
  }
}

Result<void> FileReplacement::Commit() {
  uint32_t mode = options_.mode.value_or(existing_ ? existing_->st_mode & 07777 : 0644);
  if (existing_) {
    KeepAttributes();
    bool foreign =
        identity_ != nullptr && identity_->switches() && existing_->st_uid != identity_->uid();
    // A content by one user must not run with another's rights.
    if (foreign) mode &= ~06000U;
  }
  // The mode while the file is still the user's own.
  if (::fchmod(file_.get(), mode) != 0) return Fail(FileError(errno, "chmod"));
  if (existing_) {
    CAISSON_TRY(KeepOwner());
    // A change of owner clears these bits.
    if ((mode & 06000) != 0) (void)!::fchmod(file_.get(), mode);
  }
  int directory = place_.directory.get();
  unsigned flags = options_.create_only ? kRenameNoReplace : 0;
  if (::syscall(SYS_renameat2, directory, temporary_.c_str(), directory, place_.name.c_str(),
                flags) != 0) {
    return Fail(FileError(errno, "rename"));
  }
  temporary_.clear();
  return {};
}

}  // namespace caisson::guest
