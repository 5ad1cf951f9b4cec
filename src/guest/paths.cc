#include "guest/paths.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr int kMaxLinks = 40;  // as the kernel's

std::string_view StripSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

// "a/b/c" → {"a/b", "c"}; "c" → {".", "c"}; "/c" → {"/", "c"}.
std::pair<std::string, std::string> SplitLast(std::string_view path) {
  path = StripSlashes(path);
  size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return {".", std::string(path)};
  std::string_view parent = slash == 0 ? std::string_view("/") : path.substr(0, slash);
  return {std::string(parent), std::string(path.substr(slash + 1))};
}

Result<UniqueFd> OpenAt2(int base, const std::string& text, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = resolve;
  for (int attempt = 0;; attempt++) {
    long fd = ::syscall(SYS_openat2, base, text.c_str(), &how, sizeof how);
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    // EAGAIN: something was renamed while ".." was resolved beneath the root.
    if (errno == EINTR || (errno == EAGAIN && attempt < 64)) continue;
    return Fail(FileError(errno, "open"));
  }
}

const char* TypeName(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symlink";
    case S_IFIFO:
      return "fifo";
    case S_IFSOCK:
      return "socket";
    default:
      return "device";
  }
}

}  // namespace

Error FileError(int error_number, std::string_view tried) {
  Error error = ErrnoError(error_number, tried);
  error.cause = ErrnoName(error_number);
  return error;
}

Result<void> CheckPath(const FilePath& path) {
  auto bad = [](const char* message) { return Fail(ErrorCode::kInvalidPath, message); };
  std::string_view text = path.text;
  if (text.empty()) return bad("the path is empty");
  if (text.find('\0') != std::string_view::npos) return bad("the path has a NUL");
  if (text.size() >= kMaxPathBytes) return bad("the path exceeds 4095 bytes");
  size_t component = 0;
  for (char c : text) {
    component = c == '/' ? 0 : component + 1;
    if (component > kMaxNameBytes) return bad("a component of the path exceeds 255 bytes");
  }
  if (path.root == PathRoot::kWorkDir && text[0] == '/') {
    return bad("with root=work_dir the path must be relative");
  }
  return {};
}

Result<PathRoot> ParseRoot(std::string_view name) {
  if (name.empty() || name == "sandbox") return PathRoot::kSandbox;
  if (name == "work_dir") return PathRoot::kWorkDir;
  return Fail(ErrorCode::kInvalidArgument, "`root` must be sandbox or work_dir");
}

std::string JoinPath(std::string_view base, std::string_view name) {
  if (name.empty()) return std::string(base);
  base = StripSlashes(base);
  if (base.empty() || base == ".") return std::string(name);
  std::string path(base);
  if (path.back() != '/') path += '/';
  return path += name;
}

std::string_view LastComponent(std::string_view path) {
  path = StripSlashes(path);
  size_t slash = path.rfind('/');
  return slash == std::string_view::npos || path.size() == 1 ? path : path.substr(slash + 1);
}

Result<Paths> Paths::Open(const std::string& work_dir) {
  Paths paths;
  struct stat status{};
  if (::stat("/", &status) != 0) return Fail(FileError(errno, "stat /"));
  paths.root_id_ = {status.st_dev, status.st_ino};
  auto held = paths.Resolve(PathRoot::kSandbox, work_dir, O_PATH | O_DIRECTORY);
  if (!held && held.error().cause == "ENOSYS") {
    return Fail(ErrorCode::kHostUnsupported, "the kernel has no openat2: Linux 5.6 is required");
  }
  if (!held) return std::unexpected(held.error());
  paths.work_dir_ = *std::move(held);
  if (::fstat(paths.work_dir_.get(), &status) != 0) return Fail(FileError(errno, "stat work_dir"));
  paths.work_id_ = {status.st_dev, status.st_ino};
  return paths;
}

Result<UniqueFd> Paths::Resolve(PathRoot root, const std::string& text, uint64_t flags) const {
  uint64_t resolve = RESOLVE_NO_MAGICLINKS;
  if (root == PathRoot::kWorkDir) resolve |= RESOLVE_BENEATH;
  return OpenAt2(work_dir_ ? work_dir_.get() : AT_FDCWD, text, flags, resolve);
}

Result<UniqueFd> Paths::OpenAny(const FilePath& path, int flags) const {
  CAISSON_TRY(CheckPath(path));
  return Resolve(path.root, path.text, static_cast<uint64_t>(flags));
}

Result<UniqueFd> Paths::OpenRegular(const FilePath& path, struct stat& status) const {
  auto check = [&](int fd) -> Result<void> {
    if (::fstat(fd, &status) != 0) return Fail(FileError(errno, "stat"));
    if (S_ISDIR(status.st_mode)) return Fail(FileError(EISDIR, "open"));
    if (S_ISREG(status.st_mode)) return {};
    return Fail(ErrorCode::kNotARegularFile, std::string("it is a ") + TypeName(status.st_mode));
  };
  // Opening a FIFO or a device can have effects; looking at it has none.
  CAISSON_ASSIGN(UniqueFd look, OpenAny(path, O_PATH));
  CAISSON_TRY(check(look.get()));
  CAISSON_ASSIGN(UniqueFd file, OpenAny(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  CAISSON_TRY(check(file.get()));
  return file;
}

Result<UniqueFd> Paths::OpenDirectory(const FilePath& path) const {
  return OpenAny(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
}

Result<UniqueFd> Paths::OpenBelow(int directory, const std::string& path) {
  return OpenAt2(directory, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK,
                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

Result<Paths::Place> Paths::Locate(const FilePath& path, bool follow) const {
  CAISSON_TRY(CheckPath(path));
  std::string text = path.text;
  for (int links = 0; links <= kMaxLinks; links++) {
    auto [parent, name] = SplitLast(text);
    if (name.empty() || name == "/" || name == "." || name == "..") {
      return Fail(ErrorCode::kInvalidPath, "the path names no entry of a directory");
    }
    if (name.size() > kMaxNameBytes) return Fail(FileError(ENAMETOOLONG, "open"));
    CAISSON_ASSIGN(UniqueFd directory, Resolve(path.root, parent, O_PATH | O_DIRECTORY));
    std::string target = follow ? ReadLink(directory.get(), name.c_str()) : std::string();
    if (target.empty()) return Place{std::move(directory), std::move(name)};
    struct statfs where{};
    if (::fstatfs(directory.get(), &where) != 0 || where.f_type == PROC_SUPER_MAGIC) {
      return Fail(FileError(ELOOP, "follow a magic link"));
    }
    // The parent's text is kept, not reduced: the kernel resolves its links and dots.
    if (target[0] == '/') {
      if (path.root == PathRoot::kWorkDir) return Fail(FileError(EXDEV, "follow a link"));
      text = target;
    } else {
      text = parent == "/" ? "/" + target : parent + "/" + target;
    }
  }
  return Fail(FileError(ELOOP, "open"));
}

Result<void> Paths::MakeParents(const FilePath& path) const {
  CAISSON_TRY(CheckPath(path));
  std::string parent = SplitLast(path.text).first;
  auto there = Resolve(path.root, parent, O_PATH | O_DIRECTORY);
  if (there || there.error().code != ErrorCode::kFileNotFound) {
    return there ? Result<void>() : std::unexpected(there.error());
  }
  for (size_t slash = parent.find('/', 1);; slash = parent.find('/', slash + 1)) {
    std::string prefix = parent.substr(0, slash);
    auto known = Resolve(path.root, prefix, O_PATH);
    if (!known) {
      CAISSON_ASSIGN(Place place, Locate(FilePath{prefix, path.root}, false));
      if (::mkdirat(place.directory.get(), place.name.c_str(), 0755) != 0 && errno != EEXIST) {
        return Fail(FileError(errno, "mkdir"));
      }
    }
    if (slash == std::string::npos) return {};
  }
}

bool Paths::IsProtected(const struct stat& status) const {
  auto is = [&](const Id& id) { return status.st_dev == id.device && status.st_ino == id.inode; };
  return is(root_id_) || is(work_id_);
}

int64_t ModifiedAtMs(const struct stat& status) {
  return static_cast<int64_t>(status.st_mtim.tv_sec) * 1000 + status.st_mtim.tv_nsec / 1'000'000;
}

void WriteEntry(JsonWriter& json, std::string_view path, std::string_view name,
                const struct stat& status, const std::string* target) {
  json.Bytes("path", path).Bytes("name", name).Field("type", TypeName(status.st_mode));
  json.Field("size_bytes", status.st_size).Field("mode", OctalMode(status.st_mode & 07777));
  json.Field("uid", status.st_uid).Field("gid", status.st_gid);
  json.Field("modified_at_ms", ModifiedAtMs(status));
  if (target != nullptr) json.Bytes("target", *target);
}

std::string ReadLink(int directory, const char* name) {
  char target[kMaxPathBytes];
  ssize_t size = ::readlinkat(directory, name, target, sizeof target);
  return size <= 0 ? std::string() : std::string(target, static_cast<size_t>(size));
}

}  // namespace caisson::guest
