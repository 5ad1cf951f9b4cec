#include "guest/search.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>

#include "guest/glob.h"
#include "guest/loop.h"
#include "guest/protocol.h"

namespace caisson::guest {
namespace {

// What is written last may add some more: a line of 1 MiB can have 8 MiB as JSON. Together that is
// what a reader of JSON takes.
constexpr size_t kMaxReplyBytes = 8 * 1024 * 1024;
static_assert(2 * kMaxReplyBytes <= kMaxJsonBytes);
constexpr const char kDeadline[] = "deadline";
constexpr const char kLimit[] = "limit";

class GlobVisitor : public Search {
 public:
  GlobVisitor(const Paths& paths, const GlobCall& call)
      : Search(call.limit, call.stop_ms), paths_(paths), call_(call) {
    json_.BeginObject().Key("matches").BeginArray();
  }

  bool Visit(const Entry& entry) override {
    if (!entry.matches || (entry.type == DT_DIR && !call_.directories)) return true;
    if (call_.files_only && entry.type != DT_DIR && !IsFile(entry)) return true;
    struct stat status{};
    if (::fstatat(entry.directory, entry.name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) unreadable_++;
      return true;
    }
    if (!Admit()) return false;
    bool link = S_ISLNK(status.st_mode);
    std::string target = link ? ReadLink(entry.directory, entry.name) : std::string();
    json_.BeginObject();
    std::string joined;
    if (!call_.relative) joined = JoinPath(call_.path.text, entry.path);
    WriteEntry(json_, call_.relative ? entry.path : joined, entry.name, status,
               link ? &target : nullptr);
    json_.EndObject();
    return true;
  }

  std::string Finish(int64_t unreadable) {
    json_.EndArray();
    WriteReason();
    json_.Field("unreadable", unreadable + unreadable_).EndObject();
    return json_.Take();
  }

 private:
  // A regular file, or a link to one that a read would reach.
  bool IsFile(const Entry& entry) const {
    if (entry.type != DT_LNK) return entry.type == DT_REG;
    FilePath path{JoinPath(call_.path.text, entry.path), call_.path.root};
    Result<UniqueFd> target = paths_.OpenAny(path, O_PATH);
    struct stat status{};
    return target && ::fstat(target->get(), &status) == 0 && S_ISREG(status.st_mode);
  }

  const Paths& paths_;
  const GlobCall& call_;
  int64_t unreadable_ = 0;
};

}  // namespace

bool Search::OutOfTime() {
  if (reason_ == nullptr && ++calls_ % 16 == 0 && MonotonicMs() >= stop_ms_) reason_ = kDeadline;
  return reason_ == kDeadline;
}

bool Search::HasRoom() {
  if (json_.size() > kMaxReplyBytes) reason_ = kLimit;
  return reason_ == nullptr;
}

bool Search::Admit() {
  if (found_ >= limit_) reason_ = kLimit;
  if (!HasRoom()) return false;
  found_++;
  return true;
}

void Search::WriteReason() {
  json_.Flag("truncated", reason_ != nullptr);
  if (reason_ != nullptr) json_.Field("reason", reason_);
}

FileResult GlobSearch(const Paths& paths, const GlobCall& call) {
  CAISSON_ASSIGN(Glob glob, Glob::Compile(call.pattern, {call.bare_any_depth, call.hidden,
                                                         call.bare_dot_directories}));
  CAISSON_ASSIGN(UniqueFd start, paths.OpenDirectory(call.path));
  GlobVisitor visitor(paths, call);
  Walker walker(visitor, &glob, call.hidden);
  walker.Run(std::move(start));
  return FileReply{visitor.Finish(walker.unreadable()), std::nullopt};
}

}  // namespace caisson::guest
