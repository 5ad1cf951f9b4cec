// Watching directories: what is told, when, and what it costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "fixture.h"

namespace caisson::guest {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
namespace json = boost::json;

// One stream of changes; what it has told so far.
class Watch {
 public:
  Watch(GuestProcess& guest, const std::string& path, const std::string& more = "")
      : stream_(guest.socket_path(), "GET", "/v1/files/watch?path=" + Encode(path) + more, {}) {}

  const HttpResponse& head() const { return stream_.head(); }
  // The first record.
  json::value Begun() {
    auto record = stream_.Next();
    EXPECT_TRUE(record && record->type == RecordType::kWatching);
    return record ? json::parse(record->payload) : json::value();
  }
  // Reads records until `condition` holds; false at the end of the stream, or after a minute.
  bool Until(const std::function<bool()>& condition) {
    int64_t end = NowMs() + 60'000;
    while (!condition()) {
      auto record = stream_.Next();
      if (!record || NowMs() > end) return false;
      Take(*record);
    }
    return true;
  }
  bool UntilTold(const std::string& change) {
    return Until([&] { return told_.contains(change); });
  }
  bool UntilOver() {
    return Until([&] { return !end_.empty(); }) && !stream_.Next();
  }
  // "created a", "removed d/"
  const std::set<std::string>& told() const { return told_; }
  void Clear() { told_.clear(); }
  size_t Count(const std::string& change) const {
    return counts_.contains(change) ? counts_.at(change) : 0;
  }
  size_t keep_alives() const { return keep_alives_; }
  const std::vector<std::string>& overflows() const { return overflows_; }
  const std::string& end() const { return end_; }
  void Close() { stream_.Close(); }

 private:
  void Take(const ExecRecord& record) {
    EXPECT_EQ(record.offset, 0U);
    if (record.type == RecordType::kKeepAlive) {
      keep_alives_++;
      return;
    }
    json::value payload = json::parse(record.payload);
    if (record.type == RecordType::kChanges) {
      std::set<std::string> paths;
      for (const auto& change : payload.at("changes").as_array()) {
        std::string path(change.at("path").as_string());
        EXPECT_TRUE(paths.insert(path).second) << path << " is twice in a record";
        EXPECT_EQ(path.find(".caisson-"), path.npos) << path << " is the guest's own";
        std::string text = std::string(change.at("kind").as_string()) + " " + path;
        if (change.at("directory").as_bool()) text += "/";
        told_.insert(text);
        counts_[text]++;
      }
    } else if (record.type == RecordType::kWatchOverflow) {
      overflows_.emplace_back(payload.at("reason").as_string());
    } else {
      EXPECT_EQ(record.type, RecordType::kWatchEnd);
      end_ = payload.at("reason").as_string();
    }
  }

  ExecStream stream_;
  std::set<std::string> told_;
  std::map<std::string, size_t> counts_;
  std::vector<std::string> overflows_;
  size_t keep_alives_ = 0;
  std::string end_;
};

class GuestWatch : public GuestTest {
 protected:
  void Prepare(const std::string& work) override {
    ::mkdir((work + "/root-only").c_str(), 0700);
    ::mkdir((work + "/root-readable").c_str(), 0755);
    ::mkdir((work + "/kernel").c_str(), 0755);
    ASSERT_EQ(::mount("/proc", (work + "/kernel").c_str(), nullptr, MS_BIND, nullptr), 0);
  }
  void SetUp() override {
    GuestTest::SetUp();
    if (guest_) descriptors_ = Descriptors();
  }
  void TearDown() override {
    if (guest_) EXPECT_TRUE(NothingIsLeft());
    GuestTest::TearDown();
  }
  size_t Descriptors() const {
    auto list =
        std::filesystem::directory_iterator("/proc/" + std::to_string(guest_->pid()) + "/fd");
    return static_cast<size_t>(std::distance(begin(list), end(list)));
  }
  // Streams that were left have taken their workers and descriptors with them.
  bool NothingIsLeft() const {
    return WaitFor(
        [&] { return guest_->Children("caisson-work").empty() && Descriptors() <= descriptors_; },
        20'000);
  }
  std::string Refused(const std::string& path, const std::string& more = "") {
    return guest_->Call("GET", "/v1/files/watch?path=" + Encode(path) + more).Code();
  }

  size_t descriptors_ = 0;
};

TEST_F(GuestWatch, ChangesAreToldByTheirKind) {
  Sh("mkdir d; echo old > d/f; echo old > d/g");
  Watch watch(*guest_, "d");
  json::value begun = watch.Begun();
  EXPECT_EQ(begun.at("directories"), 1);
  EXPECT_EQ(begun.at("unreadable"), 0);
  Sh("echo new > d/new; echo more >> d/f; rm d/g");
  EXPECT_TRUE(watch.UntilTold("created d/new"));
  EXPECT_TRUE(watch.UntilTold("modified d/f"));
  EXPECT_TRUE(watch.UntilTold("removed d/g"));
  watch.Clear();
  // What was new before is known by now.
  Sh("chmod 600 d/new; mv d/f d/h; mkdir d/sub");
  EXPECT_TRUE(watch.UntilTold("created d/sub/"));
  EXPECT_TRUE(watch.UntilTold("removed d/f"));
  EXPECT_TRUE(watch.UntilTold("created d/h"));
  EXPECT_TRUE(watch.UntilTold("modified d/new"));
  watch.Clear();
  // Not recursive: what is in it is not told.
  Sh("echo x > d/sub/x; rmdir d/nothing 2>&1; rm d/h");
  EXPECT_TRUE(watch.UntilTold("removed d/h"));
  EXPECT_EQ(watch.told(), std::set<std::string>{"removed d/h"});
  EXPECT_TRUE(watch.overflows().empty());
}

TEST_F(GuestWatch, FileCallsAreToldAsWell) {
  Watch watch(*guest_, ".");
  watch.Begun();
  guest_->Call("PUT", "/v1/files/content?path=a", "one");
  EXPECT_TRUE(watch.UntilTold("created a"));
  guest_->Call("POST", "/v1/files/move", R"({"from":"a","to":"b"})");
  EXPECT_TRUE(watch.UntilTold("created b"));
  EXPECT_TRUE(watch.UntilTold("removed a"));
  guest_->Call("POST", "/v1/files/remove", R"({"path":"b"})");
  EXPECT_TRUE(watch.UntilTold("removed b"));
}

TEST_F(GuestWatch, NamesMayBeAnyBytes) {
  Sh("mkdir d");
  ExecStream stream(guest_->socket_path(), "GET", "/v1/files/watch?path=d", {});
  stream.Next();
  Sh("touch \"$(printf 'd/a\\377\\nb')\"");
  auto record = stream.Next();
  ASSERT_TRUE(record && record->type == RecordType::kChanges);
  json::value changes = json::parse(record->payload).at("changes");
  EXPECT_EQ(changes.at(0).at("path"), "d/a\uFFFD\nb");
  EXPECT_EQ(changes.at(0).at("path_base64"), "ZC9h/wpi");
}

TEST_F(GuestWatch, ManyWritesAreFewRecords) {
  Sh("echo old > f");
  ExecStream stream(guest_->socket_path(), "GET", "/v1/files/watch?path=.", {});
  stream.Next();
  int64_t start = NowMs();
  Sh("i=0; while [ $i -lt 1000 ]; do echo $i >> f; i=$((i+1)); done; touch end");
  int64_t windows = (NowMs() - start) / kWatchWindowMs + 2;
  int64_t records = 0;
  for (bool over = false; !over;) {
    auto record = stream.Next();
    ASSERT_TRUE(record && record->type == RecordType::kChanges);
    records++;
    over = record->payload.find("\"end\"") != std::string::npos;
    json::value payload = json::parse(record->payload);
    const json::array& changes = payload.at("changes").as_array();
    EXPECT_LE(changes.size(), 2U);
  }
  EXPECT_LE(records, windows);
}

TEST_F(GuestWatch, NewDirectoriesAreWatchedFromTheirFirstFileOn) {
  Sh("mkdir -p t/old/deep");
  Watch watch(*guest_, "t", "&recursive=1");
  EXPECT_EQ(watch.Begun().at("directories"), 3);
  Sh("touch t/old/deep/f");
  EXPECT_TRUE(watch.UntilTold("created t/old/deep/f"));
  // Each file is made at once in a directory that is made at once: no watch can stand by then.
  Sh("for i in $(seq 300); do mkdir -p t/n$i/a/b; echo x > t/n$i/a/b/f; done");
  for (int i = 1; i <= 300; i++) {
    std::string top = "t/n" + std::to_string(i);
    ASSERT_TRUE(watch.UntilTold("created " + top + "/a/b/f"));
    EXPECT_TRUE(watch.UntilTold("created " + top + "/"));
    EXPECT_TRUE(watch.UntilTold("created " + top + "/a/"));
  }
  // And they are watched from then on.
  Sh("for i in $(seq 300); do rm t/n$i/a/b/f; done");
  for (int i = 1; i <= 300; i++) {
    ASSERT_TRUE(watch.UntilTold("removed t/n" + std::to_string(i) + "/a/b/f"));
  }
  EXPECT_TRUE(watch.overflows().empty());
}

TEST_F(GuestWatch, MovedTreesAreKnownByTheirNewPlace) {
  Sh("mkdir -p t/a/b t/a-b outside/c; touch t/a/b/f outside/c/f");
  Watch watch(*guest_, "t", "&recursive=1");
  watch.Begun();
  Sh("mv t/a t/moved");
  EXPECT_TRUE(watch.UntilTold("removed t/a/"));
  EXPECT_TRUE(watch.UntilTold("created t/moved/b/f"));
  Sh("echo x >> t/moved/b/f; touch t/a-b/f");
  EXPECT_TRUE(watch.UntilTold("modified t/moved/b/f"));
  EXPECT_TRUE(watch.UntilTold("created t/a-b/f"));
  Sh("mv t/moved outside/moved; mv outside/c t/c");
  EXPECT_TRUE(watch.UntilTold("removed t/moved/"));
  EXPECT_TRUE(watch.UntilTold("created t/c/f"));
  watch.Clear();
  Sh("echo x > outside/moved/b/g; mkdir t/a; touch t/a/new; touch t/c/end");
  EXPECT_TRUE(watch.UntilTold("created t/a/new"));
  EXPECT_TRUE(watch.UntilTold("created t/c/end"));
  EXPECT_THAT(watch.told(), Not(Contains(HasSubstr("/g"))));
}

TEST_F(GuestWatch, LinksAreNotEntered) {
  Sh("mkdir t other; ln -s ../other t/link; ln -s / t/root");
  Watch watch(*guest_, "t", "&recursive=1");
  EXPECT_EQ(watch.Begun().at("directories"), 1);
  Sh("touch other/x t/link/y t/z; ln -s ../other t/later; touch t/later/w t/end");
  EXPECT_TRUE(watch.UntilTold("created t/end"));
  EXPECT_EQ(watch.told(),
            (std::set<std::string>{"created t/end", "created t/later", "created t/z"}));
  // A link in the path itself is followed, as by other calls.
  Watch by_link(*guest_, "t/link");
  by_link.Begun();
  Sh("touch other/seen");
  EXPECT_TRUE(by_link.UntilTold("created t/link/seen"));
}

TEST_F(GuestWatch, TheUsersAuthorityAndNoMore) {
  EXPECT_EQ(Refused("root-only"), "file_access_denied");
  EXPECT_EQ(Refused("none"), "file_not_found");
  Sh("touch f; mkdir d; ln -s / d/out; ln -s .. d/up");
  EXPECT_EQ(Refused("f"), "not_a_directory");
  EXPECT_EQ(Refused(""), "invalid_path");
  EXPECT_EQ(guest_->Call("GET", "/v1/files/watch").Code(), "invalid_argument");
  EXPECT_EQ(Refused("..", "&root=work_dir"), "outside_root");
  EXPECT_EQ(Refused("d/out", "&root=work_dir"), "outside_root");
  EXPECT_EQ(Refused("/etc", "&root=work_dir"), "invalid_path");
  EXPECT_EQ(Refused("/proc/self/cwd"), "symlink_loop");
  Watch inside(*guest_, "d/up", "&root=work_dir&recursive=1");
  json::value begun = inside.Begun();
  EXPECT_EQ(begun.at("directories"), 3);  // it, d, root-readable; not kernel
  EXPECT_EQ(begun.at("unreadable"), 1);
  Sh("touch d/x");
  EXPECT_TRUE(inside.UntilTold("created d/up/d/x"));
}

TEST_F(GuestWatch, ADirectoryThatGoesEndsItsStream) {
  Sh("mkdir -p removed/sub moved above/below");
  Watch removed(*guest_, "removed", "&recursive=1");
  Watch moved(*guest_, "moved");
  Watch below(*guest_, "above/below", "&recursive=1");
  for (Watch* watch : {&removed, &moved, &below}) watch->Begun();
  Sh("touch removed/last; rm -r removed; mv moved elsewhere; mv above over; mkdir over/below/new");
  EXPECT_TRUE(removed.UntilOver());
  EXPECT_EQ(removed.end(), "removed");
  EXPECT_THAT(removed.told(), IsSupersetOf({"removed removed/sub/", "removed removed/last"}));
  EXPECT_TRUE(moved.UntilOver());
  EXPECT_EQ(moved.end(), "moved");
  // That the path leads elsewhere is seen when it is walked again.
  EXPECT_TRUE(below.UntilOver());
  EXPECT_EQ(below.end(), "moved");
}

TEST_F(GuestWatch, ASlowReaderIsToldThatItMissedSomething) {
  Sh("mkdir d");
  Watch watch(*guest_, "d", "&recursive=1");
  watch.Begun();
  // More than all buffers on the way hold, and nobody reads.
  std::string name(200, 'n');
  std::string fill = "i=0; while [ $i -lt 20000 ]; do : > d/" + name + "$i; i=$((i+1)); done";
  ASSERT_EQ(guest_->Shell(fill, 60'000).ExitCode(), 0);
  if (kMeasures) {
    for (pid_t worker : guest_->Children("caisson-work")) {
      std::ifstream status("/proc/" + std::to_string(worker) + "/status");
      std::string line;
      while (std::getline(status, line)) {
        if (line.starts_with("RssAnon:")) EXPECT_LT(std::atoll(line.c_str() + 8), 4'096) << "KiB";
      }
    }
    EXPECT_LT(guest_->RssKiB(), 8'192);
  }
  EXPECT_TRUE(watch.Until([&] { return !watch.overflows().empty(); }));
  // It goes on. While the reader catches up there may be one more, which covers what happens then.
  size_t overflows = 0;
  for (int i = 1; overflows != watch.overflows().size(); i++) {
    overflows = watch.overflows().size();
    std::string after = "d/after" + std::to_string(i);
    Sh("mkdir " + after + "; touch " + after + "/f");
    EXPECT_TRUE(watch.Until([&] {
      return watch.told().contains("created " + after + "/f") ||
             overflows != watch.overflows().size();
    }));
  }
  Sh("rm d/" + name + "1");
  EXPECT_TRUE(watch.UntilTold("removed d/" + name + "1"));
}

TEST_F(GuestWatch, WhatTheKernelLostIsLookedForAgain) {
  std::ifstream limit("/proc/sys/fs/inotify/max_queued_events");
  size_t queued = 0;
  limit >> queued;
  if (queued == 0 || queued > 50'000) GTEST_SKIP() << "the queue is too long to be filled";
  Sh("mkdir d");
  Watch watch(*guest_, "d", "&recursive=1");
  watch.Begun();
  std::vector<pid_t> workers = guest_->Children("caisson-work");
  ASSERT_EQ(workers.size(), 1U);
  ::kill(workers[0], SIGSTOP);
  std::string count = std::to_string(queued + 10);
  std::string fill = "i=0; while [ $i -lt " + count + " ]; do : > d/f$((i%2)); i=$((i+1)); done; " +
                     "mkdir -p d/unseen/deep";
  EXPECT_EQ(guest_->Shell(fill, 60'000).ExitCode(), 0);
  ::kill(workers[0], SIGCONT);
  EXPECT_TRUE(watch.Until([&] { return !watch.overflows().empty(); }));
  EXPECT_EQ(watch.overflows()[0], "queue");
  watch.Clear();
  Sh("touch d/unseen/deep/f");
  EXPECT_TRUE(watch.UntilTold("created d/unseen/deep/f"));
}

TEST_F(GuestWatch, DirectoriesBeyondTheLimitAreAnOverflow) {
  std::string count = std::to_string(kMaxWatchedDirectories - 1);
  ASSERT_EQ(guest_->Shell("mkdir t; cd t; seq " + count + " | xargs mkdir", 60'000).ExitCode(), 0);
  Watch watch(*guest_, "t", "&recursive=1");
  EXPECT_EQ(watch.Begun().at("directories"), static_cast<int64_t>(kMaxWatchedDirectories));
  Sh("touch t/7/f");
  EXPECT_TRUE(watch.UntilTold("created t/7/f"));
  EXPECT_TRUE(watch.overflows().empty());
  Sh("mkdir t/more");
  EXPECT_TRUE(watch.Until([&] { return !watch.overflows().empty(); }));
  EXPECT_EQ(watch.overflows()[0], "directories");
  // There is room again.
  Sh("rmdir t/1; mkdir t/another; touch t/another/f");
  EXPECT_TRUE(watch.UntilTold("created t/another/f"));
}

TEST_F(GuestWatch, StreamsHaveALimitAndLeaveNothing) {
  for (int i = 0; i < 200; i++) {
    Watch watch(*guest_, "/", i % 2 == 0 ? "" : "&root=sandbox");
    ASSERT_EQ(watch.head().status, 200) << watch.head().body;
    watch.Begun();
    watch.Close();
    // The guest hears of the end of a stream when it looks at it next.
    ASSERT_TRUE(i % 8 != 7 || NothingIsLeft());
  }
  std::vector<std::unique_ptr<Watch>> watches;
  for (size_t i = 0; i < kMaxWatches; i++) {
    watches.push_back(std::make_unique<Watch>(*guest_, "."));
    watches.back()->Begun();
  }
  EXPECT_EQ(Refused("."), "overloaded");
  watches.pop_back();
  EXPECT_TRUE(WaitFor([&] { return Watch(*guest_, ".").head().status == 200; }));
  Sh("touch f");
  for (auto& watch : watches) EXPECT_TRUE(watch->UntilTold("created f"));
}

TEST_F(GuestWatch, SilenceIsKeptAlive) {
  Watch watch(*guest_, ".");
  watch.Begun();
  EXPECT_TRUE(watch.Until([&] { return watch.keep_alives() > 0; }));
  EXPECT_TRUE(watch.told().empty());
}

TEST_F(GuestWatch, IsDeclared) {
  json::value features = guest_->Call("GET", "/v1/hello").Json().at("features");
  EXPECT_THAT(features.as_array(), Contains(json::value("files.watch")));
}

}  // namespace
}  // namespace caisson::guest
