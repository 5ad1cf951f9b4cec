// Lines of files that match, with the lines around them.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "guest/glob.h"
#include "guest/line_finder.h"
#include "guest/search.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kSniffBytes = 8 * 1024;
constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kMaxHeldLine = 4 * 1024 * 1024;  // a longer line is searched in parts

// The line at text[at], without its end; `at` moves behind it.
std::string_view TakeLine(std::string_view text, size_t& at) {
  size_t end = std::min(text.find('\n', at), text.size());
  std::string_view line = text.substr(at, end - at);
  at = end + 1;
  return line;
}

// Where the line before the one at text[at] starts.
size_t LineBefore(std::string_view text, size_t at) {
  if (at < 2) return 0;
  const void* end = ::memrchr(text.data(), '\n', at - 1);
  return end == nullptr ? 0 : static_cast<size_t>(static_cast<const char*>(end) - text.data()) + 1;
}

class GrepVisitor : public Search {
 public:
  GrepVisitor(const GrepCall& call, LineFinder finder)
      : Search(call.limit, call.stop_ms), call_(call), finder_(std::move(finder)) {
    json_.BeginObject().Key("matches").BeginArray();
  }

  bool Visit(const Entry& entry) override {
    if (!entry.matches || entry.type != DT_REG) return true;
    if (!call_.hidden && entry.name[0] == '.') return true;
    UniqueFd file(::openat(entry.directory, entry.name,
                           O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
    struct stat status{};
    if (!file || ::fstat(file.get(), &status) != 0) {
      if (errno != ENOENT) unreadable_++;
      return true;
    }
    if (!S_ISREG(status.st_mode)) return true;
    below_ = entry.path;
    return File(file.get(), status.st_size);
  }

  // False stops the search. `size` is as of opening; 0 may mean that it is not known (/proc).
  bool File(int fd, int64_t size) {
    line_ = 1;
    in_file_ = 0;
    written_ = 0;
    after_left_ = 0;
    used_ = 0;
    history_.clear();
    long_ = LongLine();
    path_.clear();
    finder_.StartLine();
    int64_t total = 0;
    for (;;) {
      Reserve();
      ssize_t got = ::read(fd, buffer_.get() + used_, capacity_ - used_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        unreadable_++;
        return true;
      }
      if (total == 0) {
        size_t sniffed = std::min(static_cast<size_t>(got), kSniffBytes);
        if (std::memchr(buffer_.get(), 0, sniffed) != nullptr) {
          binary_++;
          return true;
        }
        files_++;
      }
      total += got;
      used_ += static_cast<size_t>(got);
      // What is appended meanwhile is not waited for: that saves a call for each file.
      bool last = got == 0 || (size > 0 && total >= size);
      if (!Consume(last)) return !Stopped();
      if (last) return true;
      LookAtClock();
      if (OutOfTime()) return false;
    }
  }

  std::string Finish(int64_t unreadable) {
    json_.EndArray();
    WriteReason();
    json_.Field("files_searched", files_).Field("binary_skipped", binary_);
    json_.Field("unreadable", unreadable + unreadable_).EndObject();
    return json_.Take();
  }

 private:
  struct LongLine {
    bool active = false;   // its start is no longer in the buffer
    bool matched = false;  // and written
    std::string start;
  };
  struct KeptLine {
    int64_t number = 0;
    std::string text;  // of which the reply's cap may want to cut more, so a little longer
  };

  // Room for the next read behind what is held.
  void Reserve() {
    if (capacity_ - used_ >= kReadBytes / 2) return;
    capacity_ = std::max(capacity_ * 2, kReadBytes);
    auto larger = std::make_unique_for_overwrite<char[]>(capacity_);
    if (used_ > 0) std::memcpy(larger.get(), buffer_.get(), used_);
    buffer_ = std::move(larger);
  }
  void DropFront(size_t bytes) {
    std::memmove(buffer_.get(), buffer_.get() + bytes, used_ - bytes);
    used_ -= bytes;
  }

  // Searches the whole lines that are held and keeps the rest. False: no more of this file.
  bool Consume(bool last) {
    std::string_view held(buffer_.get(), used_);
    size_t end = last ? used_ : held.rfind('\n') + 1;  // without a line's end: 0
    if (end > 0 || (last && long_.active)) {
      if (!Lines(held.substr(0, end), last)) return false;
      DropFront(end);
    }
    return used_ <= kMaxHeldLine || PartOfLine();
  }

  // Repeats a step of the finder while it pauses. False for nothing, or for a stop: see Stopped.
  template <typename Step>
  bool Found(Step step) {
    for (;;) {
      LineFinder::Found found = step();
      if (found != LineFinder::Found::kPause) return found == LineFinder::Found::kMatch;
      LookAtClock();
      if (OutOfTime()) return false;
    }
  }

  // All that is held is a part of one line.
  bool PartOfLine() {
    std::string_view part(buffer_.get(), used_);
    if (!long_.active) {
      long_ = LongLine{true, false, std::string(part.substr(0, KeptBytes()))};
    }
    if (!long_.matched) {
      finder_.Load(part);
      size_t at = 0;
      if (Found([&] { return finder_.FindInPart(at, false); }) && !MatchLongLine()) return false;
      if (Stopped()) return false;
    }
    DropFront(used_ - finder_.Overlap());
    return true;
  }
  bool MatchLongLine() {
    long_.matched = true;
    if (!AdmitMatch() || !WriteBefore({}, 0)) return false;
    after_left_ = call_.after;
    WriteLine(line_, long_.start, true, false);
    return true;
  }
  // The end of a long line, which is text[0 .. at) when this returns.
  bool EndLongLine(std::string_view text, size_t& at) {
    std::string_view rest = TakeLine(text, at);
    at = std::min(at, text.size());
    if (!long_.matched) {
      finder_.Load(rest);
      size_t from = 0;
      if (Found([&] { return finder_.FindInPart(from, true); }) && !MatchLongLine()) return false;
      if (Stopped()) return false;
    }
    finder_.StartLine();
    if (!long_.matched) {
      if (after_left_ > 0 && !WriteContext(line_, long_.start, true)) return false;
      Keep(line_, long_.start);
    }
    long_ = LongLine();
    line_++;
    return true;
  }

  // `text` starts where line line_ does, or within it if that is a long one. False: no more of this
  // file.
  bool Lines(std::string_view text, bool last) {
    size_t begin = 0;
    if (long_.active && !EndLongLine(text, begin)) return false;
    text.remove_prefix(begin);
    finder_.Load(text);
    size_t at = 0;  // where line line_ starts
    while (at < text.size()) {
      size_t hit = at;
      if (!Found([&] { return finder_.Find(hit); })) break;
      size_t start = hit == at ? at : std::max(at, LineBefore(text, hit + 1));
      if (!WriteAfter(text, at, start)) return false;
      line_ += CountLineFeeds(text.substr(at, start - at));
      at = start;
      if (!AdmitMatch() || !WriteBefore(text, start)) return false;
      after_left_ = call_.after;
      WriteLine(line_, TakeLine(text, at), false, false);
      line_++;
      if (in_file_ >= call_.limit_per_file && after_left_ == 0) return false;
    }
    if (Stopped()) return false;
    at = std::min(at, text.size());
    if (!WriteAfter(text, at, text.size())) return false;
    if (last) return true;
    if (in_file_ >= call_.limit_per_file && after_left_ == 0) return false;
    line_ += CountLineFeeds(text.substr(at));
    KeepLast(text);
    return true;
  }

  // The lines from text[at], which is line line_, to text[end] that follow a match closely enough.
  bool WriteAfter(std::string_view text, size_t& at, size_t end) {
    while (after_left_ > 0 && at < end) {
      if (!WriteContext(line_, TakeLine(text, at), false)) return false;
      line_++;
    }
    at = std::min(at, end);
    return true;
  }
  // The lines before text[start], which is line line_, that are not written yet.
  bool WriteBefore(std::string_view text, size_t start) {
    int64_t first = std::max(line_ - call_.before, written_ + 1);
    int64_t number = line_;
    for (; number > first && start > 0; number--) start = LineBefore(text, start);
    for (const KeptLine& kept : history_) {
      if (kept.number < first || kept.number >= number) continue;
      if (!WriteContext(kept.number, kept.text, false)) return false;
    }
    for (; number < line_; number++) {
      if (!WriteContext(number, TakeLine(text, start), false)) return false;
    }
    return true;
  }

  // What is kept of a line is enough to see that it is longer than the cap.
  size_t KeptBytes() const { return call_.max_line_bytes + 4; }
  void Keep(int64_t number, std::string_view line) {
    if (call_.before == 0) return;
    auto most = static_cast<size_t>(call_.before);
    if (history_.size() == most) history_.erase(history_.begin());
    history_.push_back({number, std::string(line.substr(0, KeptBytes()))});
  }
  // The last lines of text, behind which line line_ starts.
  void KeepLast(std::string_view text) {
    size_t from = text.size();
    int64_t number = line_;
    for (int64_t left = call_.before; left > 0 && from > 0; left--, number--) {
      from = LineBefore(text, from);
    }
    while (from < text.size()) Keep(number++, TakeLine(text, from));
  }

  bool AdmitMatch() {
    if (in_file_ >= call_.limit_per_file || !Admit()) return false;
    in_file_++;
    return true;
  }
  bool WriteContext(int64_t number, std::string_view text, bool cut) {
    if (!HasRoom()) return false;
    if (after_left_ > 0) after_left_--;
    WriteLine(number, text, cut, true);
    return true;
  }
  void WriteLine(int64_t number, std::string_view text, bool cut, bool context) {
    written_ = number;
    if (!cut && text.ends_with('\r')) text.remove_suffix(1);
    std::string_view shown = CutText(text, call_.max_line_bytes);
    if (path_.empty()) {
      bool relative = call_.relative && !below_.empty();
      path_ = relative ? std::string(below_) : JoinPath(call_.path.text, below_);
    }
    json_.BeginObject().Bytes("path", path_).Field("line", number).Bytes("text", shown);
    if (cut || shown.size() < text.size()) json_.Flag("cut", true);
    if (context) json_.Flag("context", true);
    json_.EndObject();
  }

  const GrepCall& call_;
  LineFinder finder_;
  std::string_view below_;  // the file's path below the start; empty if it is the start
  std::string path_;        // as it is shown; made for the first line that is

  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t used_ = 0;

  // Of the file at hand.
  int64_t line_ = 1;  // the line that comes next
  size_t in_file_ = 0;
  int64_t written_ = 0;  // the last line that was
  int64_t after_left_ = 0;
  std::vector<KeptLine> history_;  // the last lines before what is held
  LongLine long_;

  int64_t files_ = 0;
  int64_t binary_ = 0;
  int64_t unreadable_ = 0;
};

}  // namespace

FileResult GrepSearch(const Paths& paths, const GrepCall& call) {
  CAISSON_ASSIGN(LineFinder finder, LineFinder::Make(call.pattern, call.regex, call.ignore_case));
  std::optional<Glob> glob;
  if (!call.glob.empty()) {
    CAISSON_ASSIGN(glob, Glob::Compile(call.glob, {true, call.hidden, false}));
  }
  GrepVisitor visitor(call, std::move(finder));
  int64_t unreadable = 0;
  auto start = paths.OpenDirectory(call.path);
  if (start) {
    Walker walker(visitor, glob ? &*glob : nullptr, call.hidden);
    walker.Run(*std::move(start));
    unreadable = walker.unreadable();
  } else if (start.error().code == ErrorCode::kNotADirectory) {
    struct stat status{};
    CAISSON_ASSIGN(UniqueFd file, paths.OpenRegular(call.path, status));
    visitor.File(file.get(), status.st_size);
  } else {
    return std::unexpected(start.error());
  }
  return FileReply{visitor.Finish(unreadable), std::nullopt};
}

}  // namespace caisson::guest
