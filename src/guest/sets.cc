#include "guest/sets.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "base/syscall.h"
#include "guest/protocol.h"
#include "guest/sha256.h"
#include "guest/text.h"
#include "guest/walk.h"

namespace caisson::guest {
namespace {

constexpr size_t kHashText = 64;
constexpr std::string_view kVersion = "v-";

std::string In(const SetPlace& set, std::string_view name) {
  return set.store + "/" + std::string(name);
}

std::string DigestOf(const SetFiles& files) {
  Sha256 hash;
  for (const auto& [path, file] : files) {
    hash.Update(file.sha256);
    hash.Update(file.executable ? " x " : " - ");
    hash.Update(path);
    hash.Update("\n");
  }
  return hash.HexDigest();
}

Result<void> Made(int result, const char* what) {
  if (result == 0 || errno == EEXIST) return {};
  return Fail(FileError(errno, what));
}

// The names in a directory of the store.
Result<std::vector<std::string>> NamesIn(const std::string& directory) {
  CAISSON_ASSIGN(UniqueFd fd, OpenFile(directory, O_RDONLY | O_DIRECTORY));
  std::vector<std::string> names;
  std::string buffer;
  long got = 0;
  do {
    got = ReadEntries(fd.get(), buffer,
                      [&](std::string_view name, unsigned char) { names.emplace_back(name); });
  } while (got > 0);
  if (got < 0) return Fail(FileError(errno, "list"));
  return names;
}

Result<void> CopyFile(const std::string& from, const std::string& to, mode_t mode) {
  CAISSON_ASSIGN(UniqueFd source, OpenFile(from, O_RDONLY));
  UniqueFd target(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!target) return Fail(FileError(errno, "create"));
  char buffer[64 * 1024];
  for (;;) {
    ssize_t got = ::read(source.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(FileError(errno, "read"));
    if (got == 0) return {};
    CAISSON_TRY(WriteAll(target.get(), std::string_view(buffer, static_cast<size_t>(got))));
  }
}

Result<void> PlaceFile(const SetPlace& set, const SetFile& file, const std::string& target) {
  std::string blob = BlobPath(set, file.sha256);
  if (file.executable) return CopyFile(blob, target, 0555);
  if (::link(blob.c_str(), target.c_str()) == 0) return {};
  // Landlock before ABI 2 allows no link into another directory.
  if (errno == EXDEV) return CopyFile(blob, target, 0444);
  return Fail(FileError(errno, "link"));
}

// A version that is not whole has another name.
Result<void> MakeVersion(const Paths& paths, const SetPlace& set, const SetFiles& files,
                         const std::string& name) {
  std::string final_path = In(set, name);
  if (::access(final_path.c_str(), F_OK) == 0) return {};
  std::string next = In(set, "next");
  CAISSON_TRY(RemoveFile(paths, FilePath{next}, true, true));
  CAISSON_TRY(Made(::mkdir(next.c_str(), 0755), "mkdir"));
  for (const auto& [path, file] : files) {
    std::string target = next + "/" + path;
    CAISSON_TRY(paths.MakeParents(FilePath{target}));
    CAISSON_TRY(PlaceFile(set, file, target));
  }
  if (::rename(next.c_str(), final_path.c_str()) != 0) return Fail(FileError(errno, "rename"));
  return {};
}

std::string CurrentVersion(const SetPlace& set) {
  return ReadLink(AT_FDCWD, In(set, "current").c_str());
}

std::string ShownDigest(const SetPlace& set) {
  std::string version = CurrentVersion(set);
  return version.starts_with(kVersion) ? version.substr(kVersion.size()) : std::string();
}

Result<void> Show(const SetPlace& set, const std::string& version) {
  std::string beside = In(set, "current.next");
  (void)::unlink(beside.c_str());
  if (::symlink(version.c_str(), beside.c_str()) != 0) return Fail(FileError(errno, "symlink"));
  if (::rename(beside.c_str(), In(set, "current").c_str()) != 0) {
    return Fail(FileError(errno, "rename"));
  }
  return {};
}

// What neither of two versions needs.
Result<void> Clean(const Paths& paths, const SetPlace& set, const SetFiles& files,
                   const std::string& shown, const std::string& before) {
  CAISSON_ASSIGN(std::vector<std::string> versions, NamesIn(set.store));
  for (const std::string& name : versions) {
    if (!name.starts_with(kVersion) || name == shown || name == before) continue;
    CAISSON_TRY(RemoveFile(paths, FilePath{In(set, name)}, true, true));
  }
  std::set<std::string_view> used;
  for (const auto& [path, file] : files) used.insert(file.sha256);
  CAISSON_ASSIGN(std::vector<std::string> blobs, NamesIn(In(set, "blobs")));
  for (const std::string& name : blobs) {
    // One that is on its way has another name.
    bool unused = IsSha256(name) && used.find(name) == used.end();
    if (unused) (void)::unlink(BlobPath(set, name).c_str());
  }
  return {};
}

std::string Answer(const std::vector<std::string>& missing, std::string_view digest, bool changed) {
  JsonWriter json;
  json.BeginObject().Key("missing").BeginArray();
  for (const std::string& hash : missing) json.String(hash);
  json.EndArray().Field("digest", digest).Flag("changed", changed).EndObject();
  return json.Take();
}

// Below the set's place, as it is shown.
bool IsPathBelow(const std::string& path) {
  if (!CheckPath(FilePath{path}) || path.front() == '/') return false;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    std::string_view component = std::string_view(path).substr(begin, end - begin);
    if (component.empty() || component == "." || component == "..") return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

bool IsSha256(std::string_view text) {
  return text.size() == kHashText &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string BlobPath(const SetPlace& set, std::string_view sha256) {
  return In(set, "blobs/" + std::string(sha256));
}

Result<SetFiles> ReadSetFiles(const Json& list) {
  if (list.items().size() > kMaxSetFiles) {
    return Fail(ErrorCode::kInvalidArgument,
                "a set has at most " + Decimal(int64_t{kMaxSetFiles}) + " files");
  }
  SetFiles files;
  for (const Json& item : list.items()) {
    Fields fields(item);
    std::string path = fields.Required("path");
    SetFile file{fields.Required("sha256"), fields.Bool("executable", false)};
    if (fields.error()) return Fail(*fields.error());
    if (!IsSha256(file.sha256)) {
      return Fail(ErrorCode::kInvalidArgument, "`sha256` must be 64 digits of lower-case hex");
    }
    const char* wrong = IsPathBelow(path) ? nullptr : "is no path below the set's";
    if (wrong == nullptr && !files.emplace(path, std::move(file)).second) wrong = "comes twice";
    if (wrong != nullptr) return Fail(ErrorCode::kInvalidPath, "\"" + path + "\" " + wrong);
  }
  return files;
}

Result<void> OpenSet(const SetPlace& set) {
  CAISSON_TRY(Made(::mkdir(In(set, "blobs").c_str(), 0700), "mkdir"));
  if (!CurrentVersion(set).empty()) return {};
  std::string version = std::string(kVersion) + DigestOf({});
  CAISSON_TRY(Made(::mkdir(In(set, version).c_str(), 0755), "mkdir"));
  return Show(set, version);
}

FileResult DescribeSet(const SetPlace& set) {
  JsonWriter json;
  json.BeginObject().Field("digest", ShownDigest(set)).EndObject();
  return FileReply{json.Take(), std::nullopt};
}

FileResult ApplySet(const Paths& paths, const SetPlace& set, const SetFiles& files) {
  // One at a time; it ends with this process, however that ends.
  CAISSON_ASSIGN(UniqueFd turn, OpenFile(set.store, O_RDONLY | O_DIRECTORY));
  while (::flock(turn.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Fail(FileError(errno, "lock"));
  }
  std::set<std::string> missing;
  for (const auto& [path, file] : files) {
    if (::access(BlobPath(set, file.sha256).c_str(), F_OK) != 0) missing.insert(file.sha256);
  }
  std::string before = CurrentVersion(set);
  std::string digest = DigestOf(files);
  std::string version = std::string(kVersion) + digest;
  if (!missing.empty()) {
    return FileReply{Answer({missing.begin(), missing.end()}, ShownDigest(set), false),
                     std::nullopt};
  }
  if (version != before) {
    CAISSON_TRY(MakeVersion(paths, set, files, version));
    CAISSON_TRY(Show(set, version));
  }
  CAISSON_TRY(Clean(paths, set, files, version, before));
  return FileReply{Answer({}, digest, version != before), std::nullopt};
}

}  // namespace caisson::guest
