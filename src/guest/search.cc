#include "guest/search.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "guest/json.h"
#include "guest/loop.h"
#include "guest/text.h"
#include "guest/walk.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxReplyBytes = 48 * 1024 * 1024;
constexpr size_t kSniffBytes = 8 * 1024;
constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMaxHeldLine = 4 * 1024 * 1024;  // a longer line is searched in parts

// Shared by both: why a search stopped early.
class Limits : public WalkVisitor {
 public:
  Limits(size_t limit, int64_t stop_ms) : limit_(limit), stop_ms_(stop_ms) {}

  bool OutOfTime() override {
    if (reason_ == nullptr && ++calls_ % 16 == 0 && MonotonicMs() >= stop_ms_) reason_ = "deadline";
    return reason_ != nullptr && reason_[0] == 'd';
  }

 protected:
  // Whether one more match may be written; the first that may not is what makes it truncated.
  bool Admit() {
    if (found_ >= limit_ || json_.size() > kMaxReplyBytes) {
      reason_ = "limit";
      return false;
    }
    found_++;
    return true;
  }
  void Close(JsonWriter& json, const char* reason) const {
    json.Flag("truncated", reason != nullptr);
    if (reason != nullptr) json.Field("reason", reason);
  }

  const size_t limit_;
  const int64_t stop_ms_;
  size_t found_ = 0;
  uint64_t calls_ = 0;
  const char* reason_ = nullptr;
  JsonWriter json_;
};

class GlobVisitor : public Limits {
 public:
  explicit GlobVisitor(const GlobCall& call) : Limits(call.limit, call.stop_ms), call_(call) {
    json_.BeginObject().Key("matches").BeginArray();
  }

  bool Visit(const Entry& entry) override {
    if (!entry.matches || (entry.type == DT_DIR && !call_.directories)) return true;
    struct stat status{};
    if (::fstatat(entry.directory, entry.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno != ENOENT) unreadable_++;
      return true;
    }
    if (!Admit()) return false;
    bool link = S_ISLNK(status.st_mode);
    std::string target = link ? ReadLink(entry.directory, entry.name.c_str()) : std::string();
    json_.BeginObject();
    WriteEntry(json_, JoinPath(call_.path.text, entry.path), entry.name, status,
               link ? &target : nullptr);
    json_.EndObject();
    return true;
  }

  std::string Finish(int64_t unreadable) {
    json_.EndArray();
    Close(json_, reason_);
    json_.Field("unreadable", unreadable + unreadable_).EndObject();
    return json_.Take();
  }

 private:
  const GlobCall& call_;
  int64_t unreadable_ = 0;
};

class GrepVisitor : public Limits {
 public:
  explicit GrepVisitor(const GrepCall& call) : Limits(call.limit, call.stop_ms), call_(call) {
    needle_ = call.pattern;
    if (call.ignore_case) Lower(needle_);
    json_.BeginObject().Key("matches").BeginArray();
  }

  bool Visit(const Entry& entry) override {
    if (!entry.matches || entry.type != DT_REG) return true;
    if (!call_.hidden && entry.name.starts_with('.')) return true;
    UniqueFd file(::openat(entry.directory, entry.name.c_str(),
                           O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
      if (errno != ENOENT) unreadable_++;
      return true;
    }
    if (!S_ISREG(status.st_mode)) return true;
    return File(file.get(), JoinPath(call_.path.text, entry.path));
  }

  // False stops the search.
  bool File(int fd, const std::string& path) {
    path_ = &path;
    line_ = 1;
    in_file_ = 0;
    held_.clear();
    long_line_ = LongLine();
    bool first = true;
    for (;;) {
      size_t used = held_.size();
      held_.resize(used + kReadBytes);
      ssize_t got = ::read(fd, held_.data() + used, kReadBytes);
      held_.resize(used + (got > 0 ? static_cast<size_t>(got) : 0));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        unreadable_++;
        return true;
      }
      if (first) {
        first = false;
        if (std::memchr(held_.data(), 0, std::min(held_.size(), kSniffBytes)) != nullptr) {
          binary_++;
          return true;
        }
        files_++;
      }
      if (!Consume(got == 0)) return reason_ == nullptr;
      if (got == 0) return true;
      calls_ |= 15;  // a block is work enough to look at the clock
      if (OutOfTime()) return false;
    }
  }

  std::string Finish(int64_t unreadable) {
    json_.EndArray();
    Close(json_, reason_);
    json_.Field("files_searched", files_).Field("binary_skipped", binary_);
    json_.Field("unreadable", unreadable + unreadable_).EndObject();
    return json_.Take();
  }

 private:
  struct LongLine {
    bool active = false;   // its start is no longer in held_
    bool written = false;  // it has matched already
    std::string prefix;
  };

  static void Lower(std::string& text) {
    for (char& c : text) c = AsciiLower(c);
  }

  // Searches the whole lines in held_ and keeps the rest. False: no more of this file.
  bool Consume(bool last) {
    size_t newline = held_.rfind('\n');
    size_t end = newline == std::string::npos ? 0 : newline + 1;
    if (last) end = held_.size();
    if (end > 0 && !Lines(std::string_view(held_).substr(0, end))) return false;
    held_.erase(0, end);
    if (held_.size() <= kMaxHeldLine) return true;
    if (!long_line_.active) {
      long_line_ = LongLine{true, false, held_.substr(0, call_.max_line_bytes + 4)};
    }
    if (!long_line_.written && Find(held_, 0) != std::string_view::npos) {
      long_line_.written = true;
      if (!Write(line_, long_line_.prefix, true)) return false;
    }
    // A match may lie across the parts.
    held_.erase(0, held_.size() - (needle_.size() - 1));
    return true;
  }

  size_t Find(std::string_view text, size_t from) {
    if (!call_.ignore_case) return text.find(needle_, from);
    return lowered_for_ == text.data() && lowered_.size() == text.size()
               ? std::string_view(lowered_).find(needle_, from)
               : LowerAndFind(text, from);
  }
  size_t LowerAndFind(std::string_view text, size_t from) {
    lowered_ = text;
    Lower(lowered_);
    lowered_for_ = text.data();
    return std::string_view(lowered_).find(needle_, from);
  }

  bool Lines(std::string_view text) {
    lowered_for_ = nullptr;
    size_t counted = 0;  // line_ is the number of the line that holds this position
    size_t at = 0;
    if (long_line_.active) {
      // The end of a long line: at most one match, with its start as the text.
      size_t end = text.find('\n');
      std::string_view rest = text.substr(0, end);
      bool found = !long_line_.written && Find(rest, 0) != std::string_view::npos;
      lowered_for_ = nullptr;
      std::string prefix = std::move(long_line_.prefix);
      long_line_ = LongLine();
      if (found && !Write(line_, prefix, true)) return false;
      if (end == std::string_view::npos) return true;
      at = end + 1;
    }
    for (;;) {
      size_t hit = Find(text, at);
      size_t until = hit == std::string_view::npos ? text.size() : hit;
      line_ += std::count(text.begin() + static_cast<ptrdiff_t>(counted),
                          text.begin() + static_cast<ptrdiff_t>(until), '\n');
      counted = until;
      if (hit == std::string_view::npos) return true;
      size_t before = hit == 0 ? std::string_view::npos : text.rfind('\n', hit - 1);
      size_t start = before == std::string_view::npos ? 0 : before + 1;
      size_t end = std::min(text.find('\n', hit), text.size());
      if (!Write(line_, text.substr(start, end - start), false)) return false;
      if (end == text.size()) return true;
      at = end + 1;
    }
  }

  bool Write(int64_t number, std::string_view text, bool cut) {
    if (in_file_ >= call_.limit_per_file) return false;
    if (!Admit()) return false;
    in_file_++;
    if (!cut && text.ends_with('\r')) text.remove_suffix(1);
    if (text.size() > call_.max_line_bytes) {
      size_t limit = call_.max_line_bytes;
      while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xC0) == 0x80) limit--;
      text = text.substr(0, limit);
      cut = true;
    }
    json_.BeginObject().Bytes("path", *path_).Field("line", number).Bytes("text", text);
    if (cut) json_.Flag("cut", true);
    json_.EndObject();
    return true;
  }

  const GrepCall& call_;
  std::string needle_;
  const std::string* path_ = nullptr;
  std::string held_;
  std::string lowered_;
  const char* lowered_for_ = nullptr;
  LongLine long_line_;
  int64_t line_ = 1;
  size_t in_file_ = 0;
  int64_t files_ = 0;
  int64_t binary_ = 0;
  int64_t unreadable_ = 0;
};

}  // namespace

FileResult GlobSearch(const Paths& paths, const GlobCall& call) {
  CAISSON_ASSIGN(Glob glob, Glob::Compile(call.pattern, {call.bare_any_depth, call.hidden}));
  CAISSON_ASSIGN(UniqueFd start, paths.OpenDirectory(call.path));
  GlobVisitor visitor(call);
  Walker walker(visitor, &glob, call.hidden);
  walker.Run(std::move(start));
  return FileReply{visitor.Finish(walker.unreadable()), std::nullopt};
}

FileResult GrepSearch(const Paths& paths, const GrepCall& call) {
  std::optional<Glob> glob;
  if (!call.glob.empty()) {
    CAISSON_ASSIGN(glob, Glob::Compile(call.glob, {true, call.hidden}));
  }
  GrepVisitor visitor(call);
  int64_t unreadable = 0;
  auto start = paths.OpenDirectory(call.path);
  if (start) {
    Walker walker(visitor, glob ? &*glob : nullptr, call.hidden);
    walker.Run(*std::move(start));
    unreadable = walker.unreadable();
  } else if (start.error().code == ErrorCode::kNotADirectory) {
    struct stat status{};
    CAISSON_ASSIGN(UniqueFd file, paths.OpenRegular(call.path, status));
    visitor.File(file.get(), call.path.text);
  } else {
    return std::unexpected(start.error());
  }
  return FileReply{visitor.Finish(unreadable), std::nullopt};
}

}  // namespace caisson::guest
