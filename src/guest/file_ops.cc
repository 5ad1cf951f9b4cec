#include "guest/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/syscall.h"
#include "guest/media_type.h"
#include "guest/sha256.h"

namespace caisson::guest {
namespace {

constexpr unsigned kRenameNoReplace = 1;  // RENAME_NOREPLACE

struct CloseDirectory {
  void operator()(DIR* list) const { ::closedir(list); }
};
using DirectoryList = std::unique_ptr<DIR, CloseDirectory>;

Result<DirectoryList> OpenList(UniqueFd fd) {
  DIR* list = ::fdopendir(fd.get());
  if (list == nullptr) return Fail(FileError(errno, "list"));
  (void)fd.release();
  return DirectoryList(list);
}

bool IsDots(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

FileResult EntryReply(const Paths& paths, const FilePath& path) { return StatFile(paths, {path}); }

// The whole content; its size is checked before a byte is read.
Result<std::string> ReadText(const Paths& paths, const FilePath& path) {
  struct stat status{};
  CAISSON_ASSIGN(UniqueFd file, paths.OpenRegular(path, status));
  constexpr const char* kTooLarge = "the file exceeds 268435456 bytes";
  if (status.st_size > kMaxTextFileBytes) return Fail(ErrorCode::kFileTooLarge, kTooLarge);
  std::string content(static_cast<size_t>(status.st_size) + 1, '\0');
  size_t used = 0;
  for (;;) {
    if (used == content.size()) {
      if (static_cast<int64_t>(used) > kMaxTextFileBytes) {
        return Fail(ErrorCode::kFileTooLarge, kTooLarge);
      }
      content.resize(used + 64 * 1024);  // it grew, or its size was not told (/proc)
    }
    ssize_t got = ::read(file.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(FileError(errno, "read"));
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  content.resize(used);
  return content;
}

Result<void> WriteMediaType(JsonWriter& json, const Paths& paths, const FilePath& path) {
  struct stat status{};
  CAISSON_ASSIGN(UniqueFd file, paths.OpenRegular(path, status));
  char head[kMediaHeadBytes];
  ssize_t got = ::read(file.get(), head, sizeof head);
  if (got < 0) return Fail(FileError(errno, "read"));
  bool whole = static_cast<size_t>(got) < sizeof head;
  MediaType type = GuessMediaType(LastComponent(path.text),
                                  std::string_view(head, static_cast<size_t>(got)), whole);
  json.Field("media_type", type.name).Flag("text", type.is_text);
  return {};
}

// Removes what is in `directory`; `depth` bounds the descriptors in use.
Result<void> RemoveTree(const Paths& paths, int directory, const char* name, int depth) {
  if (depth == 0) return Fail(ErrorCode::kInvalidPath, "the tree is deeper than 512 directories");
  UniqueFd fd(::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return Fail(FileError(errno, std::string(name) + ": open"));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return Fail(FileError(errno, std::string(name) + ": stat"));
  if (paths.IsProtected(status)) {
    return Fail(ErrorCode::kFileAccess, std::string(name) + " is the working directory");
  }
  CAISSON_ASSIGN(DirectoryList list, OpenList(std::move(fd)));
  int handle = ::dirfd(list.get());
  errno = 0;
  while (dirent* entry = ::readdir(list.get())) {
    if (IsDots(entry->d_name)) continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (!is_directory && ::unlinkat(handle, entry->d_name, 0) != 0 && errno != ENOENT) {
      is_directory = errno == EISDIR;
      if (!is_directory) {
        return Fail(FileError(errno, std::string(name) + "/" + entry->d_name + ": remove"));
      }
    }
    if (!is_directory) continue;
    auto removed = RemoveTree(paths, handle, entry->d_name, depth - 1);
    if (!removed) {
      removed.error().message = std::string(name) + "/" + removed.error().message;
      return removed;
    }
  }
  list.reset();
  if (::unlinkat(directory, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
    return Fail(FileError(errno, std::string(name) + ": remove"));
  }
  return {};
}

}  // namespace

FileResult StatFile(const Paths& paths, const StatRequest& request) {
  const FilePath& path = request.path;
  CAISSON_ASSIGN(UniqueFd fd, paths.OpenAny(path, O_PATH | (request.follow ? 0 : O_NOFOLLOW)));
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) return Fail(FileError(errno, "stat"));
  std::string target;
  bool link = S_ISLNK(status.st_mode);
  if (link) target = ReadLink(fd.get(), "");
  JsonWriter json;
  json.BeginObject();
  WriteEntry(json, path.text, LastComponent(path.text), status, link ? &target : nullptr);
  if (request.media_type && S_ISREG(status.st_mode)) {
    CAISSON_TRY(WriteMediaType(json, paths, path));
  }
  json.EndObject();
  return FileReply{json.Take(), std::nullopt};
}

FileResult ListDirectory(const Paths& paths, const ListRequest& request) {
  CAISSON_ASSIGN(UniqueFd fd, paths.OpenDirectory(request.path));
  CAISSON_ASSIGN(DirectoryList list, OpenList(std::move(fd)));
  // A heap of the smallest `limit` + 1 names keeps memory bounded in any directory.
  std::vector<std::string> names;
  size_t scanned = 0;
  while (dirent* entry = ::readdir(list.get())) {
    if (IsDots(entry->d_name)) continue;
    if (++scanned > request.max_scan) return Fail(ErrorCode::kOverloaded, "many entries");
    std::string_view name = entry->d_name;
    if (name <= request.after && !request.after.empty()) continue;
    if (names.size() <= request.limit) {
      names.emplace_back(name);
      std::push_heap(names.begin(), names.end());
    } else if (name < names.front()) {
      std::pop_heap(names.begin(), names.end());
      names.back() = name;
      std::push_heap(names.begin(), names.end());
    }
  }
  std::sort_heap(names.begin(), names.end());
  bool truncated = names.size() > request.limit;
  if (truncated) names.pop_back();
  int directory = ::dirfd(list.get());
  JsonWriter json;
  json.BeginObject().Key("entries").BeginArray();
  for (const std::string& name : names) {
    std::string path = JoinPath(request.path.text, name);
    struct stat status{};
    json.BeginObject();
    if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      json.Bytes("path", path).Bytes("name", name);
      json.Field("error", InfoOf(CodeFromErrno(errno)).wire);
    } else {
      bool link = S_ISLNK(status.st_mode);
      std::string target = link ? ReadLink(directory, name.c_str()) : std::string();
      WriteEntry(json, path, name, status, link ? &target : nullptr);
    }
    json.EndObject();
  }
  json.EndArray().Flag("truncated", truncated).EndObject();
  return FileReply{json.Take(), std::nullopt};
}

FileResult MakeDirectory(const Paths& paths, const FilePath& path, bool parents,
                         std::optional<uint32_t> mode) {
  if (parents) {
    CAISSON_TRY(paths.MakeParents(path));
    auto there = paths.OpenAny(path, O_PATH | O_DIRECTORY);
    if (there) return EntryReply(paths, path);
  }
  CAISSON_ASSIGN(Paths::Place place, paths.Locate(path, false));
  if (::mkdirat(place.directory.get(), place.name.c_str(), mode.value_or(0755)) != 0) {
    return Fail(FileError(errno, "mkdir"));
  }
  return EntryReply(paths, path);
}

FileResult MoveFile(const Paths& paths, const FilePath& from, const FilePath& to, bool overwrite) {
  CAISSON_ASSIGN(Paths::Place source, paths.Locate(from, false));
  CAISSON_ASSIGN(Paths::Place target, paths.Locate(to, false));
  struct stat status{};
  if (::fstatat(source.directory.get(), source.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return Fail(FileError(errno, "move"));
  }
  if (paths.IsProtected(status)) {
    return Fail(ErrorCode::kFileAccess, "the root and the working directory stay where they are");
  }
  if (::syscall(SYS_renameat2, source.directory.get(), source.name.c_str(), target.directory.get(),
                target.name.c_str(), overwrite ? 0 : kRenameNoReplace) != 0) {
    if (errno == EXDEV) {
      return Fail(ErrorCode::kNotSupported, "the two paths lie on different file systems", "EXDEV");
    }
    return Fail(FileError(errno, "move"));
  }
  return EntryReply(paths, to);
}

bool IsPlainRemoval(const Paths& paths, const FilePath& path) {
  auto place = paths.Locate(path, false);
  struct stat status{};
  return !place ||
         ::fstatat(place->directory.get(), place->name.c_str(), &status, AT_SYMLINK_NOFOLLOW) !=
             0 ||
         !S_ISDIR(status.st_mode);
}

FileResult RemoveFile(const Paths& paths, const FilePath& path, bool recursive, bool missing_ok) {
  auto reply = [](bool removed) {
    return FileReply{removed ? "{\"removed\":true}" : "{\"removed\":false}", std::nullopt};
  };
  // "/" has no last component; it is refused by the same name as the working directory.
  if (path.text.find_first_not_of("/.") == std::string::npos && !path.text.empty()) {
    struct stat status{};
    CAISSON_ASSIGN(UniqueFd fd, paths.OpenAny(path, O_PATH));
    if (::fstat(fd.get(), &status) == 0 && paths.IsProtected(status)) {
      return Fail(ErrorCode::kFileAccess, "the root and the working directory are not removed");
    }
  }
  auto place = paths.Locate(path, false);
  if (!place) {
    if (missing_ok && place.error().code == ErrorCode::kFileNotFound) return reply(false);
    return std::unexpected(place.error());
  }
  int directory = place->directory.get();
  const char* name = place->name.c_str();
  struct stat status{};
  if (::fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT && missing_ok) return reply(false);
    return Fail(FileError(errno, "remove"));
  }
  if (paths.IsProtected(status)) {
    return Fail(ErrorCode::kFileAccess, "the root and the working directory are not removed");
  }
  if (S_ISDIR(status.st_mode)) {
    if (!recursive) return Fail(FileError(EISDIR, "remove"));
    CAISSON_TRY(RemoveTree(paths, directory, name, 512));
  } else if (::unlinkat(directory, name, 0) != 0) {
    return Fail(FileError(errno, "remove"));
  }
  return reply(true);
}

int64_t SizeOf(const Paths& paths, const FilePath& path) {
  auto fd = paths.OpenAny(path, O_PATH);
  struct stat status{};
  return fd && ::fstat(fd->get(), &status) == 0 ? status.st_size : 0;
}

FileResult FileLines(const Paths& paths, const FilePath& path, const LineWindowRequest& request) {
  CAISSON_ASSIGN(std::string content, ReadText(paths, path));
  CAISSON_ASSIGN(LineWindow window, ReadLineWindow(content, request));
  JsonWriter meta;
  meta.BeginObject().Field("total_lines", window.total_lines);
  meta.Field("start_line", window.start_line).Field("end_line", window.end_line);
  meta.Key("next_offset");
  window.next_offset ? meta.Int(*window.next_offset) : meta.Null();
  meta.Flag("cut", window.cut).Field("size_bytes", static_cast<int64_t>(content.size()));
  meta.EndObject();
  return FileReply{std::move(window.text), meta.Take()};
}

FileResult EditFile(const Paths& paths, const EditCall& call, const Identity* identity) {
  CAISSON_ASSIGN(std::string content, ReadText(paths, call.path));
  if (!call.if_match.empty() && Sha256::Hex(content) != call.if_match) {
    return Fail(ErrorCode::kPreconditionFailed, "the file's hash is not `if_match`");
  }
  CAISSON_ASSIGN(EditResult edited, ReplaceText(content, call.edit));
  if (!call.dry_run && edited.content != content) {
    CAISSON_ASSIGN(FileReplacement replacement,
                   FileReplacement::Begin(paths, call.path, ReplaceOptions{}, identity));
    // The rename must not bury what someone else wrote since the content was read.
    if (!replacement.existed()) return Fail(FileError(ENOENT, "edit"));
    CAISSON_ASSIGN(std::string again, ReadText(paths, call.path));
    if (again != content) return Fail(ErrorCode::kPreconditionFailed, "the file changed meanwhile");
    again = std::string();
    CAISSON_TRY(replacement.Write(edited.content));
    CAISSON_TRY(replacement.CheckUnchanged());
    CAISSON_TRY(replacement.Commit());
  }
  JsonWriter json;
  json.BeginObject().Field("count", edited.count).Field("sha256", Sha256::Hex(edited.content));
  json.Field("size_bytes", static_cast<int64_t>(edited.content.size()));
  if (call.dry_run) {
    constexpr size_t kMaxDiffBytes = 256 * 1024;
    Diff diff = UnifiedDiff(content, edited.content, edited.spans, kMaxDiffBytes);
    json.Bytes("diff", diff.text).Flag("diff_cut", diff.cut);
  }
  json.EndObject();
  return FileReply{json.Take(), std::nullopt};
}

}  // namespace caisson::guest
