#include "guest/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "guest/changes.h"
#include "guest/json.h"
#include "guest/loop.h"
#include "guest/protocol.h"
#include "guest/records.h"
#include "guest/replace.h"
#include "guest/walk.h"

namespace caisson::guest {
namespace {

constexpr uint32_t kGone = IN_DELETE | IN_MOVED_FROM;
constexpr uint32_t kNew = IN_CREATE | IN_MOVED_TO;
constexpr uint32_t kMask =
    kGone | kNew | IN_MODIFY | IN_ATTRIB | IN_ONLYDIR | IN_EXCL_UNLINK | IN_MASK_ADD;
constexpr size_t kEventBytes = 64 * 1024;

// What the kernel refuses is a limit of the host, or of the sandbox's user.
Error WatchError(int error_number) {
  if (error_number == ENOSYS) {
    return Error{ErrorCode::kNotSupported, "the kernel has no inotify", {}, {}};
  }
  if (error_number != EMFILE && error_number != ENOSPC) return FileError(error_number, "watch");
  return Error{ErrorCode::kOverloaded,
               "the host gives no more watches (fs.inotify.max_user_instances, max_user_watches)",
               ErrnoName(error_number),
               {}};
}

class Watcher {
 public:
  Watcher(const Paths& paths, const WatchCall& call, int out)
      : paths_(paths), call_(call), out_fd_(out), changes_(call.path.text) {}

  // Watches the directory itself. What is below comes with Run.
  Result<void> Begin();
  Result<void> Run();

 private:
  // Of directories by their path below the watched one, which is "" itself.
  struct Directory {
    int wd = -1;
    bool report = false;  // it is news, and so is what is in it
  };
  using Directories = std::map<std::string, Directory>;

  Result<int> Watch(int directory, bool top) const;
  void Found(std::string path, bool report);
  void Forget(const std::string& path);
  void Scan();
  void List(int directory, const std::string& path, bool report);
  Result<void> ReadEvents();
  void Handle(const inotify_event& event, std::string_view name);
  void Note(std::string path, ChangeKind kind, bool directory);
  void Lose(const char* reason);
  void NextRecord();
  int WaitMs() const;
  void End(const char* reason);

  const Paths& paths_;
  const WatchCall& call_;
  const int out_fd_;
  const KernelTrees kernel_trees_;
  UniqueFd inotify_;
  struct stat top_status_{};
  UniqueFd top_;  // only while directories are due: a held one would not go away
  Directories watched_;
  Directories due_;                          // found, to be watched and listed
  size_t path_bytes_ = 0;                    // of both
  std::map<int, const std::string*> by_wd_;  // the keys of watched_
  int64_t unreadable_ = 0;
  std::string buffer_;

  Changes changes_;
  int64_t tell_at_ms_ = 0;  // when changes_ is not empty
  std::string out_;         // at most one record
  bool begun_ = false;
  const char* end_ = nullptr;  // why
  bool ended_ = false;         // and that is told
  int64_t last_record_ms_ = 0;
};

Result<void> Watcher::Begin() {
  watched_.clear();
  due_.clear();
  by_wd_.clear();
  path_bytes_ = 0;
  inotify_.reset();
  inotify_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify_) return Fail(WatchError(errno));
  CAISSON_ASSIGN(top_, paths_.OpenDirectory(call_.path));
  struct stat status{};
  if (::fstat(top_.get(), &status) != 0) return Fail(FileError(errno, "stat"));
  if (begun_ && (status.st_dev != top_status_.st_dev || status.st_ino != top_status_.st_ino)) {
    return Fail(ErrorCode::kFileNotFound, "another directory is there now");
  }
  top_status_ = status;
  CAISSON_ASSIGN(int wd, Watch(top_.get(), true));
  by_wd_[wd] = &watched_.try_emplace("", Directory{wd}).first->first;
  if (call_.recursive) due_.try_emplace("");
  return {};
}

// inotify knows paths only, so the directory becomes the working one.
Result<int> Watcher::Watch(int directory, bool top) const {
  if (::fchdir(directory) != 0) return Fail(FileError(errno, "enter"));
  int wd = ::inotify_add_watch(inotify_.get(), ".", top ? kMask | IN_MOVE_SELF : kMask);
  if (wd < 0) return Fail(WatchError(errno));
  return wd;
}

void Watcher::Found(std::string path, bool report) {
  auto waits = due_.find(path);
  if (waits != due_.end()) {
    waits->second.report |= report;
    return;
  }
  size_t size = path.size();
  // What no call could name is not entered.
  bool too_long = call_.path.text.size() + 1 + size >= kMaxPathBytes;
  if (too_long || watched_.size() + due_.size() >= kMaxWatchedDirectories ||
      path_bytes_ + size > kMaxWatchedPathBytes) {
    return Lose("directories");
  }
  path_bytes_ += size;
  due_.try_emplace(std::move(path), Directory{-1, report});
}

// The directory that was at `path`, and what was below it.
void Watcher::Forget(const std::string& path) {
  for (Directories* set : {&watched_, &due_}) {
    auto it = set->lower_bound(path);
    while (it != set->end() && it->first.starts_with(path)) {
      // "a-b" lies between "a" and "a/b".
      if (it->first.size() > path.size() && it->first[path.size()] != '/') {
        ++it;
        continue;
      }
      if (it->second.wd >= 0) {
        ::inotify_rm_watch(inotify_.get(), it->second.wd);
        by_wd_.erase(it->second.wd);
      }
      path_bytes_ -= it->first.size();
      it = set->erase(it);
    }
  }
}

// Watches a directory that is due, and then lists it: whatever appears in it meanwhile is seen one
// way or the other.
void Watcher::Scan() {
  auto node = due_.extract(due_.begin());
  const std::string& path = node.key();
  path_bytes_ -= path.size();
  if (path.empty()) return List(top_.get(), path, false);
  if (!top_) {
    auto top = paths_.OpenDirectory(call_.path);
    struct stat status{};
    if (!top || ::fstat(top->get(), &status) != 0 || status.st_dev != top_status_.st_dev ||
        status.st_ino != top_status_.st_ino) {
      return End("moved");  // a directory above it was: the path leads elsewhere
    }
    top_ = *std::move(top);
  }
  auto directory = Paths::OpenBelow(top_.get(), path);
  struct stat status{};
  if (!directory || ::fstat(directory->get(), &status) != 0) {
    // One that has gone, or gave way to something else, makes an event.
    if (!directory && directory.error().code == ErrorCode::kFileAccess) unreadable_++;
    return;
  }
  if (kernel_trees_.Contains(status)) return;
  auto wd = Watch(directory->get(), false);
  if (!wd) {
    if (wd.error().code == ErrorCode::kOverloaded) return Lose("directories");
    unreadable_++;
    return;
  }
  auto [known, fresh] = watched_.try_emplace(path, Directory{*wd});
  if (fresh) path_bytes_ += path.size();
  if (known->second.wd != *wd) {
    // Another directory than it was.
    ::inotify_rm_watch(inotify_.get(), known->second.wd);
    by_wd_.erase(known->second.wd);
    known->second.wd = *wd;
  }
  const std::string*& by_wd = by_wd_[*wd];
  if (by_wd != nullptr && by_wd != &known->first) {
    // It was moved, and that event is still to come; or it is mounted twice. A directory is known
    // by one path, the last it was found at, but for the watched one itself.
    if (by_wd->empty()) {
      path_bytes_ -= path.size();
      watched_.erase(known);
      return;
    }
    path_bytes_ -= by_wd->size();
    watched_.erase(*by_wd);
  }
  by_wd = &known->first;
  List(directory->get(), path, node.mapped().report);
}

void Watcher::List(int directory, const std::string& path, bool report) {
  auto on_entry = [&](std::string_view name, unsigned char type) {
    if (IsTemporaryName(name)) return;
    std::string entry = JoinPath(path, name);
    if (report) Note(entry, ChangeKind::kCreated, type == DT_DIR);
    if (type == DT_DIR) Found(std::move(entry), report);
  };
  while (ReadEntries(directory, buffer_, on_entry) > 0) {
  }
}

Result<void> Watcher::ReadEvents() {
  buffer_.resize(kEventBytes);
  ssize_t got = ::read(inotify_.get(), buffer_.data(), buffer_.size());
  if (got < 0 && errno != EAGAIN && errno != EINTR) return Fail(FileError(errno, "read inotify"));
  // What is found on the way uses the buffer, too.
  std::string events = std::exchange(buffer_, {});
  bool lost = false;
  for (ssize_t at = 0; at < got && end_ == nullptr;) {
    inotify_event event;
    const char* start = events.data() + at;
    std::memcpy(&event, start, sizeof event);
    at += static_cast<ssize_t>(sizeof event + event.len);
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      lost = true;
      break;
    }
    // NULs fill the name up.
    Handle(event, event.len == 0 ? std::string_view() : start + sizeof event);
  }
  buffer_ = std::move(events);
  if (!lost) return {};
  // Directories that were made meanwhile are not known: all is looked for again. Until that is done
  // nobody is told, so that what happens meanwhile is covered.
  Lose("queue");
  auto again = Begin();
  if (again) return {};
  if (again.error().code == ErrorCode::kOverloaded) return again;
  End("moved");
  return {};
}

void Watcher::Handle(const inotify_event& event, std::string_view name) {
  auto found = by_wd_.find(event.wd);
  if (found == by_wd_.end()) return;  // forgotten
  const std::string& directory = *found->second;
  if ((event.mask & IN_MOVE_SELF) != 0) return End("moved");
  if ((event.mask & IN_IGNORED) != 0) {
    if (directory.empty()) return End("removed");
    path_bytes_ -= directory.size();
    watched_.erase(directory);
    by_wd_.erase(found);
    return;
  }
  if (name.empty()) return;           // of the directory itself: the one above tells it
  if (IsTemporaryName(name)) return;  // of a write that is under way
  std::string path = JoinPath(directory, name);
  bool is_directory = (event.mask & IN_ISDIR) != 0;
  bool descends = is_directory && call_.recursive;
  if ((event.mask & kGone) != 0) {
    if (descends) Forget(path);
    Note(std::move(path), ChangeKind::kRemoved, is_directory);
  } else if ((event.mask & kNew) != 0) {
    if (descends) Found(path, begun_);
    Note(std::move(path), ChangeKind::kCreated, is_directory);
  } else {
    Note(std::move(path), ChangeKind::kModified, is_directory);
  }
}

void Watcher::Note(std::string path, ChangeKind kind, bool directory) {
  if (!begun_) return;
  if (changes_.empty()) tell_at_ms_ = MonotonicMs() + kWatchWindowMs;
  changes_.Add(std::move(path), kind, directory);
}

void Watcher::Lose(const char* reason) {
  if (changes_.empty()) tell_at_ms_ = MonotonicMs() + kWatchWindowMs;
  changes_.Lose(reason);
}

void Watcher::End(const char* reason) {
  end_ = reason;
  due_.clear();
  top_.reset();
  inotify_.reset();
}

// Puts the next record, if one is due, into the empty out_.
void Watcher::NextRecord() {
  int64_t now = MonotonicMs();
  if (!begun_) {
    if (!due_.empty()) return;
    begun_ = true;
    JsonWriter json;
    json.BeginObject().Field("directories", static_cast<int64_t>(watched_.size()));
    json.Field("unreadable", unreadable_).EndObject();
    AppendRecord(out_, RecordType::kWatching, 0, json.text());
  } else if (!changes_.empty() && (now >= tell_at_ms_ || end_ != nullptr) &&
             (!changes_.lost() || due_.empty())) {
    changes_.Take(out_);
  } else if (changes_.empty() && end_ != nullptr) {
    JsonWriter json;
    json.BeginObject().Field("reason", end_).EndObject();
    AppendRecord(out_, RecordType::kWatchEnd, 0, json.text());
    ended_ = true;
  } else if (now - last_record_ms_ >= kKeepAliveMs) {
    AppendRecord(out_, RecordType::kKeepAlive, 0, {});
  }
  if (!out_.empty()) last_record_ms_ = now;
}

int Watcher::WaitMs() const {
  if (!due_.empty()) return 0;
  if (!out_.empty()) return -1;  // for the reader
  int64_t next = last_record_ms_ + kKeepAliveMs;
  if (!changes_.empty()) next = std::min(next, tell_at_ms_);
  return static_cast<int>(std::clamp<int64_t>(next - MonotonicMs(), 0, kKeepAliveMs));
}

Result<void> Watcher::Run() {
  while (!ended_ || !out_.empty()) {
    if (!due_.empty()) Scan();
    if (due_.empty() && top_) {
      top_.reset();
      (void)::chdir("/");  // the working directory would be held, too
    }
    if (out_.empty()) NextRecord();
    pollfd waits[2] = {{inotify_.get(), POLLIN, 0},
                       {out_fd_, static_cast<short>(out_.empty() ? 0 : POLLOUT), 0}};
    if (::poll(waits, 2, WaitMs()) <= 0) continue;
    if ((waits[1].revents & POLLERR) != 0) return {};  // nobody reads
    if ((waits[1].revents & POLLOUT) != 0) {
      ssize_t written = ::write(out_fd_, out_.data(), out_.size());
      if (written < 0 && errno != EAGAIN && errno != EINTR) return {};
      if (written > 0) out_.erase(0, static_cast<size_t>(written));
    }
    if ((waits[0].revents & POLLIN) != 0) CAISSON_TRY(ReadEvents());
  }
  return {};
}

}  // namespace

FileResult WatchTree(const Paths& paths, const WatchCall& call, int out) {
  ::fcntl(out, F_SETFL, O_NONBLOCK);
  Watcher watcher(paths, call, out);
  CAISSON_TRY(watcher.Begin());
  CAISSON_TRY(watcher.Run());
  return FileReply{};
}

}  // namespace caisson::guest
