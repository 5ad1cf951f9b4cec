#include "guest/file_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "guest/replace.h"

namespace caisson::guest {
namespace {

constexpr int kMaxDepth = 512;  // bounds the descriptors in use

struct CloseDirectory {
  void operator()(DIR* list) const { ::closedir(list); }
};

Result<void> CopyBytes(int from, FileReplacement& to) {
  std::string buffer(128 * 1024, '\0');
  for (;;) {
    ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(FileError(errno, "read"));
    if (got == 0) return {};
    CAISSON_TRY(to.Write(std::string_view(buffer.data(), static_cast<size_t>(got))));
  }
}

class Copier {
 public:
  Copier(const Paths& paths, const CopyCall& call) : paths_(paths), call_(call) {}

  FileResult Run() {
    CAISSON_ASSIGN(Paths::Place from, paths_.Locate(call_.from, false));
    CAISSON_ASSIGN(Paths::Place to, paths_.Locate(call_.to, false));
    struct stat status{};
    if (::fstatat(from.directory.get(), from.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return Fail(FileError(errno, "copy"));
    }
    if (S_ISDIR(status.st_mode)) {
      if (!call_.recursive) return Fail(FileError(EISDIR, "copy"));
      top_ = status;
      CAISSON_TRY(CheckOutside(to.directory.get()));
    } else if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
      return Fail(ErrorCode::kNotARegularFile, "it is not a regular file, a link or a directory");
    }
    struct stat there{};
    if (!call_.overwrite &&
        ::fstatat(to.directory.get(), to.name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
      return Fail(FileError(EEXIST, "copy"));
    }
    CAISSON_TRY(CopyOne(from.directory.get(), from.name, to.directory.get(), to.name, call_.to,
                        status, kMaxDepth));
    JsonWriter json;
    json.BeginObject().Field("files", files_).Field("directories", directories_);
    json.Field("links", links_).Field("size_bytes", bytes_).Field("skipped", skipped_).EndObject();
    return FileReply{json.Take(), std::nullopt};
  }

 private:
  // Walks from the target's directory up to the root: the copied one must not be among them.
  Result<void> CheckOutside(int directory) {
    UniqueFd at(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat last{};
    for (int depth = 0; at && depth < 4096; depth++) {
      struct stat now{};
      if (::fstat(at.get(), &now) != 0) return Fail(FileError(errno, "stat"));
      if (now.st_dev == top_.st_dev && now.st_ino == top_.st_ino) {
        return Fail(ErrorCode::kInvalidArgument, "a directory cannot be copied into itself");
      }
      if (depth > 0 && now.st_dev == last.st_dev && now.st_ino == last.st_ino) return {};
      last = now;
      at.reset(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
    return Fail(FileError(at ? ELOOP : errno, "walk up from the target"));
  }

  Result<void> CopyOne(int from, const std::string& name, int to, const std::string& target,
                       const FilePath& shown, const struct stat& status, int depth) {
    Result<void> done;
    if (S_ISDIR(status.st_mode)) {
      done = CopyDirectory(from, name, to, target, shown, status, depth);
    } else if (S_ISREG(status.st_mode)) {
      done = CopyFile(from, name, shown, status);
    } else if (S_ISLNK(status.st_mode)) {
      done = CopyLink(from, name, to, target);
    } else {
      skipped_++;
    }
    if (!done && !located_) {
      located_ = true;
      done.error().message = name + ": " + done.error().message;
    }
    return done;
  }

  Result<void> CopyFile(int from, const std::string& name, const FilePath& target,
                        const struct stat& expected) {
    UniqueFd source(
        ::openat(from, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    struct stat status{};
    if (!source || ::fstat(source.get(), &status) != 0) return Fail(FileError(errno, "read"));
    // Between the look and the opening it may have become anything.
    if (!S_ISREG(status.st_mode) || status.st_ino != expected.st_ino) {
      return Fail(ErrorCode::kConflict, "the file changed while it was copied");
    }
    ReplaceOptions options;
    options.mode = status.st_mode & 0777;
    options.create_only = !call_.overwrite;
    CAISSON_ASSIGN(FileReplacement replacement,
                   FileReplacement::Begin(paths_, target, options, nullptr));
    CAISSON_TRY(CopyBytes(source.get(), replacement));
    CAISSON_TRY(replacement.Commit());
    files_++;
    bytes_ += static_cast<int64_t>(replacement.size());
    return {};
  }

  Result<void> CopyLink(int from, const std::string& name, int to, const std::string& target) {
    std::string points_to = ReadLink(from, name.c_str());
    if (points_to.empty()) return Fail(FileError(errno, "read the link"));
    if (::symlinkat(points_to.c_str(), to, target.c_str()) != 0) {
      return Fail(FileError(errno, "link"));
    }
    links_++;
    return {};
  }

  Result<void> CopyDirectory(int from, const std::string& name, int to, const std::string& target,
                             const FilePath& shown, const struct stat& status, int depth) {
    if (depth == 0) return Fail(ErrorCode::kInvalidPath, "the tree is deeper than 512 directories");
    UniqueFd source(::openat(from, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!source) return Fail(FileError(errno, "open"));
    // Writable for the copier until its content is there.
    if (::mkdirat(to, target.c_str(), 0700) != 0) return Fail(FileError(errno, "mkdir"));
    UniqueFd made(::openat(to, target.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!made) return Fail(FileError(errno, "open"));
    directories_++;
    std::unique_ptr<DIR, CloseDirectory> list(::fdopendir(source.get()));
    if (!list) return Fail(FileError(errno, "list"));
    int handle = source.release();
    while (dirent* entry = ::readdir(list.get())) {
      std::string child = entry->d_name;
      if (child == "." || child == "..") continue;
      struct stat found{};
      if (::fstatat(handle, child.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;
        return Fail(FileError(errno, child + ": stat"));
      }
      FilePath below{JoinPath(shown.text, child), shown.root};
      Result<void> copied = CopyOne(handle, child, made.get(), child, below, found, depth - 1);
      if (!copied) {
        copied.error().message = name + "/" + copied.error().message;
        return copied;
      }
    }
    if (::fchmod(made.get(), status.st_mode & 01777) != 0) return Fail(FileError(errno, "chmod"));
    return {};
  }

  const Paths& paths_;
  const CopyCall& call_;
  struct stat top_{};
  bool located_ = false;  // the error's message says where it happened
  int64_t files_ = 0;
  int64_t directories_ = 0;
  int64_t links_ = 0;
  int64_t bytes_ = 0;
  int64_t skipped_ = 0;
};

}  // namespace

FileResult CopyFiles(const Paths& paths, const CopyCall& call) { return Copier(paths, call).Run(); }

}  // namespace caisson::guest
