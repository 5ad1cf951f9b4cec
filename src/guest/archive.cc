#include "guest/archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/syscall.h"
#include "guest/connection.h"
#include "guest/protocol.h"
#include "guest/replace.h"
#include "guest/tar.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr int kMaxDepth = 512;
constexpr size_t kBufferBytes = 128 * 1024;
constexpr size_t kMaxFailures = 100;  // told one by one
constexpr unsigned kRenameNoReplace = 1;

struct CloseDirectory {
  void operator()(DIR* list) const { ::closedir(list); }
};

Result<size_t> ReadSome(int fd, char* buffer, size_t size) {
  for (;;) {
    ssize_t got = ::read(fd, buffer, size);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return Fail(FileError(errno, "read"));
  }
}

// --- Packing ----------------------------------------------------------------------------------

class Packer {
 public:
  Packer(const PackCall& call, int out) : call_(call), out_(out) {}

  // Twice over the same tree: a look at first, so that what cannot be read is an answer and not a
  // cut stream.
  Result<void> Run(int top, bool writes) {
    writes_ = writes;
    return Directory(top, "", kMaxDepth);
  }
  Result<void> File(UniqueFd file, const std::string& path, const struct stat& status) {
    TarEntry entry;
    entry.path = path;
    entry.size = status.st_size;
    entry.mode = status.st_mode & 07777;
    entry.modified_s = status.st_mtim.tv_sec;
    CAISSON_TRY(Write(TarHeader(entry)));
    std::string buffer(kBufferBytes, '\0');
    for (int64_t left = entry.size; left > 0;) {
      auto size = static_cast<size_t>(std::min<int64_t>(left, kBufferBytes));
      CAISSON_ASSIGN(size_t got, ReadSome(file.get(), buffer.data(), size));
      if (got == 0) return Fail(ErrorCode::kConflict, path + ": shrank while it was read");
      CAISSON_TRY(Write(std::string_view(buffer.data(), got)));
      left -= static_cast<int64_t>(got);
    }
    return Write(TarPadding(entry.size));
  }
  Result<void> Write(std::string_view bytes) { return WriteAll(out_, bytes); }

 private:
  static std::string Below(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "/" + name;
  }

  Result<void> Directory(int directory, const std::string& prefix, int depth) {
    if (depth == 0) return Fail(ErrorCode::kInvalidPath, prefix + ": deeper than 512 directories");
    UniqueFd copy(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR* opened = copy ? ::fdopendir(copy.get()) : nullptr;
    if (opened == nullptr) return Fail(FileError(errno, prefix + ": list"));
    (void)copy.release();
    std::unique_ptr<DIR, CloseDirectory> list(opened);
    std::vector<std::string> names;
    while (dirent* entry = ::readdir(list.get())) {
      std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(std::move(name));
    }
    list.reset();
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      Result<void> done = Entry(directory, name, Below(prefix, name), depth);
      if (done) continue;
      // A reader that is gone is nobody's entry.
      bool own = done.error().code != ErrorCode::kIo && done.error().code != ErrorCode::kConflict;
      if (!own || !call_.skip_unreadable) return done;
    }
    return {};
  }

  Result<void> Entry(int directory, const std::string& name, const std::string& path, int depth) {
    struct stat status{};
    if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return {};
      return Fail(FileError(errno, path + ": stat"));
    }
    if (S_ISDIR(status.st_mode)) {
      UniqueFd child(
          ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!child) return Fail(FileError(errno, path + ": open"));
      TarEntry entry{path + "/", TarEntry::Type::kDirectory, {},
                     0,          status.st_mode & 07777,     status.st_mtim.tv_sec};
      if (writes_) CAISSON_TRY(Write(TarHeader(entry)));
      return Directory(child.get(), path, depth - 1);
    }
    if (S_ISLNK(status.st_mode)) {
      TarEntry entry{path, TarEntry::Type::kSymlink, ReadLink(directory, name.c_str()), 0,
                     0777, status.st_mtim.tv_sec};
      return writes_ ? Write(TarHeader(entry)) : Result<void>();
    }
    if (!S_ISREG(status.st_mode)) return {};
    if (!writes_) {
      if (::faccessat(directory, name.c_str(), R_OK, 0) == 0) return {};
      return Fail(FileError(errno, path + ": open"));
    }
    UniqueFd file(::openat(directory, name.c_str(),
                           O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    if (!file || ::fstat(file.get(), &status) != 0) return Fail(FileError(errno, path + ": open"));
    if (!S_ISREG(status.st_mode)) return {};
    return File(std::move(file), path, status);
  }

  const PackCall& call_;
  const int out_;
  bool writes_ = false;
};

// --- Unpacking --------------------------------------------------------------------------------

// "a/./b//c" to its components; nothing when it would leave where it starts.
std::optional<std::vector<std::string>> Components(std::string_view path) {
  std::vector<std::string> parts;
  if (path.starts_with('/') || path.find('\0') != path.npos) return std::nullopt;
  while (!path.empty()) {
    size_t slash = path.find('/');
    std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == path.npos ? path.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part == ".." || part.size() > kMaxNameBytes) return std::nullopt;
    parts.emplace_back(part);
  }
  return parts;
}

// Whether a link in a directory `depth` below the top leads nowhere above the top. By its text
// alone: nothing that is unpacked goes through a link.
bool StaysInside(size_t depth, std::string_view target) {
  if (target.empty() || target.starts_with('/') || target.find('\0') != target.npos) return false;
  auto level = static_cast<int64_t>(depth);
  while (!target.empty()) {
    size_t slash = target.find('/');
    std::string_view part = target.substr(0, slash);
    target.remove_prefix(slash == target.npos ? target.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    level += part == ".." ? -1 : 1;
    if (level < 0) return false;
  }
  return true;
}

class Unpacker {
 public:
  Unpacker(const UnpackCall& call, int top, int in)
      : call_(call),
        top_(top),
        reader_([in](char* buffer, size_t size) { return ReadSome(in, buffer, size); }) {}

  FileResult Run() {
    Result<void> done = Entries();
    SetDirectoryModes();
    if (!done) {
      done.error().message += "; unpacked until then: " + Decimal(files_) + " files, " +
                              Decimal(directories_) + " directories, " + Decimal(links_) + " links";
      return std::unexpected(done.error());
    }
    JsonWriter json;
    json.BeginObject().Field("files", files_).Field("directories", directories_);
    json.Field("links", links_).Field("size_bytes", total_).Field("failed", failed_);
    json.EndObject();
    // The failures are JSON texts already.
    std::string text = json.Take();
    text.pop_back();
    return FileReply{text + ",\"failures\":[" + failures_ + "]}", std::nullopt};
  }

 private:
  struct Made {
    std::vector<std::string> parts;
    uint32_t mode = 0;
  };

  Result<void> Entries() {
    for (int64_t count = 0;; count++) {
      CAISSON_ASSIGN(std::optional<TarEntry> entry, reader_.Next());
      if (!entry) return {};
      if (count == call_.max_entries) {
        return Fail(ErrorCode::kTooManyFiles,
                    "the archive has more than " + Decimal(count) + " entries");
      }
      if (entry->size > call_.max_total_bytes - total_) {
        return Fail(ErrorCode::kFileTooLarge,
                    "the archive holds more than " + Decimal(call_.max_total_bytes) + " bytes");
      }
      Result<void> done = One(*entry);
      if (done) continue;
      if (broken_) return done;
      Note(entry->path, done.error());
    }
  }

  void Note(const std::string& path, const Error& error) {
    failed_++;
    if (static_cast<size_t>(failed_) > kMaxFailures) return;
    if (!failures_.empty()) failures_ += ',';
    failures_ += ErrorBody(error, path.substr(0, kMaxPathBytes));
  }

  Result<void> One(const TarEntry& entry) {
    auto parts = Components(entry.path);
    if (!parts || entry.path.size() >= kMaxPathBytes) {
      return Fail(ErrorCode::kInvalidPath, "an entry's path is relative, without \"..\"");
    }
    if (parts->empty()) {  // the directory itself
      if (entry.type == TarEntry::Type::kDirectory) return {};
      return Fail(ErrorCode::kInvalidPath, "an entry's path is empty");
    }
    if (entry.type == TarEntry::Type::kDirectory) return MakeDirectory(*std::move(parts), entry);
    std::string name = std::move(parts->back());
    parts->pop_back();
    CAISSON_ASSIGN(UniqueFd parent, OpenDirectory(*parts));
    switch (entry.type) {
      case TarEntry::Type::kFile:
        return MakeFile(parent.get(), name, entry);
      case TarEntry::Type::kSymlink:
        return MakeSymlink(parent.get(), name, parts->size(), entry);
      case TarEntry::Type::kHardLink:
        return MakeHardLink(parent.get(), name, entry);
      default:
        return Fail(ErrorCode::kNotARegularFile,
                    "devices, FIFOs and sparse files are not unpacked");
    }
  }

  // Never through a link, of the archive's own making or another's.
  Result<UniqueFd> OpenBelow(const std::vector<std::string>& parts, size_t count, int flags) {
    std::string path = ".";
    for (size_t i = 0; i < count; i++) path += "/" + parts[i];
    open_how how{};
    how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, top_, path.c_str(), &how, sizeof how)));
    if (!fd) return Fail(FileError(errno, "open " + path));
    return fd;
  }

  // The directory, made with those above it where they are missing.
  Result<UniqueFd> OpenDirectory(const std::vector<std::string>& parts) {
    auto there = OpenBelow(parts, parts.size(), O_PATH | O_DIRECTORY);
    if (there || there.error().code != ErrorCode::kFileNotFound) return there;
    CAISSON_ASSIGN(UniqueFd at, OpenBelow(parts, 0, O_PATH | O_DIRECTORY));
    for (size_t i = 0; i < parts.size(); i++) {
      if (::mkdirat(at.get(), parts[i].c_str(), 0755) == 0) {
        directories_++;
      } else if (errno != EEXIST) {
        return Fail(FileError(errno, "mkdir"));
      }
      CAISSON_ASSIGN(at, OpenBelow(parts, i + 1, O_PATH | O_DIRECTORY));
    }
    return at;
  }

  Result<void> MakeDirectory(std::vector<std::string> parts, const TarEntry& entry) {
    CAISSON_TRY(OpenDirectory(parts));
    // At the end: one that is not writable could not be filled.
    modes_.push_back({std::move(parts), entry.mode & 01777});
    return {};
  }

  void SetDirectoryModes() {
    for (size_t i = modes_.size(); i-- > 0;) {
      auto fd = OpenBelow(modes_[i].parts, modes_[i].parts.size(), O_RDONLY | O_DIRECTORY);
      // One that is another's keeps its mode.
      if (fd) (void)!::fchmod(fd->get(), modes_[i].mode);
    }
  }

  Result<void> MakeFile(int parent, const std::string& name, const TarEntry& entry) {
    std::string temporary = TemporaryName();
    UniqueFd file(::openat(parent, temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return Fail(FileError(errno, "create"));
    Result<void> done = Fill(file.get(), entry);
    if (done && ::fchmod(file.get(), entry.mode & 0777) != 0)
      done = Fail(FileError(errno, "chmod"));
    if (done) {
      timespec times[2] = {{0, UTIME_OMIT}, {static_cast<time_t>(entry.modified_s), 0}};
      (void)!::futimens(file.get(), times);
      unsigned flags = call_.create_only ? kRenameNoReplace : 0;
      if (::syscall(SYS_renameat2, parent, temporary.c_str(), parent, name.c_str(), flags) != 0) {
        done = Fail(FileError(errno, "rename"));
      }
    }
    if (!done) {
      ::unlinkat(parent, temporary.c_str(), 0);
      return done;
    }
    files_++;
    total_ += entry.size;
    return {};
  }

  Result<void> Fill(int file, const TarEntry& entry) {
    buffer_.resize(kBufferBytes);
    for (int64_t left = entry.size; left > 0;) {
      auto got = reader_.Read(buffer_.data(), buffer_.size());
      broken_ = !got;
      if (!got) return std::unexpected(got.error());
      auto written = WriteAll(file, std::string_view(buffer_.data(), *got));
      if (!written) return Fail(FileError(errno, "write"));
      left -= static_cast<int64_t>(*got);
    }
    return {};
  }

  Result<void> MakeSymlink(int parent, const std::string& name, size_t depth,
                           const TarEntry& entry) {
    if (!StaysInside(depth, entry.link)) {
      return Fail(ErrorCode::kOutsideRoot, "the link leads out of the directory");
    }
    CAISSON_TRY(ClearPlace(parent, name));
    if (::symlinkat(entry.link.c_str(), parent, name.c_str()) != 0) {
      return Fail(FileError(errno, "link"));
    }
    links_++;
    return {};
  }

  Result<void> MakeHardLink(int parent, const std::string& name, const TarEntry& entry) {
    auto parts = Components(entry.link);
    if (!parts || parts->empty()) {
      return Fail(ErrorCode::kOutsideRoot, "the link leads out of the directory");
    }
    std::string last = std::move(parts->back());
    parts->pop_back();
    CAISSON_ASSIGN(UniqueFd source, OpenBelow(*parts, parts->size(), O_PATH | O_DIRECTORY));
    struct stat status{};
    if (::fstatat(source.get(), last.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return Fail(FileError(errno, "link"));
    }
    if (!S_ISREG(status.st_mode)) {
      return Fail(ErrorCode::kNotARegularFile, "a hard link's target is not a regular file");
    }
    CAISSON_TRY(ClearPlace(parent, name));
    if (::linkat(source.get(), last.c_str(), parent, name.c_str(), 0) != 0) {
      return Fail(FileError(errno, "link"));
    }
    links_++;
    return {};
  }

  // Links do not replace by themselves.
  Result<void> ClearPlace(int parent, const std::string& name) {
    if (call_.create_only || ::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    return Fail(FileError(errno, "replace"));
  }

  const UnpackCall& call_;
  const int top_;
  TarReader reader_;
  bool broken_ = false;  // the archive, and not one entry
  std::string buffer_;
  std::vector<Made> modes_;
  int64_t files_ = 0;
  int64_t directories_ = 0;
  int64_t links_ = 0;
  int64_t total_ = 0;
  int64_t failed_ = 0;
  std::string failures_;
};

}  // namespace

FileResult PackTree(const Paths& paths, const PackCall& call, int out) {
  Packer packer(call, out);
  struct stat status{};
  CAISSON_ASSIGN(UniqueFd top, paths.OpenAny(call.path, O_PATH));
  if (::fstat(top.get(), &status) != 0) return Fail(FileError(errno, "stat"));
  if (S_ISDIR(status.st_mode)) {
    CAISSON_TRY(packer.Run(top.get(), false));
    CAISSON_TRY(packer.Run(top.get(), true));
  } else {
    CAISSON_ASSIGN(UniqueFd file, paths.OpenRegular(call.path, status));
    CAISSON_TRY(packer.File(std::move(file), std::string(LastComponent(call.path.text)), status));
  }
  CAISSON_TRY(packer.Write(TarEnd()));
  return FileReply{};
}

FileResult UnpackTree(const Paths& paths, const UnpackCall& call, int in) {
  CAISSON_ASSIGN(UniqueFd top, paths.OpenDirectory(call.path));
  return Unpacker(call, top.get(), in).Run();
}

}  // namespace caisson::guest
