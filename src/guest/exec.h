// One command: from its start to the end of its tree.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/children.h"
#include "guest/config.h"
#include "guest/loop.h"
#include "guest/output.h"
#include "guest/protocol.h"
#include "guest/server.h"
#include "guest/spawner.h"
#include "guest/tree.h"

namespace caisson::guest {

class OutputReader;
class StdinSink;

// What every exec needs of the guest. Outlives all of them.
struct ExecContext {
  Loop& loop;
  Server& server;
  Children& children;
  Spawner& spawner;
  const Config& config;
  bool supervised = false;  // else by cgroup v2, below config.cgroup
};

// A validated request.
struct ExecSpec {
  std::string id;
  std::string command;  // shell text, if `argv` is empty
  std::vector<std::string> argv;
  std::string cwd;
  std::map<std::string, std::string> env;
  bool stdin_pipe = false;
  struct Window {
    uint16_t rows = 24;
    uint16_t cols = 80;
  };
  std::optional<Window> pty;
  int64_t timeout_ms = 0;
  uint64_t head_bytes = UINT64_MAX;
  size_t tail_bytes = 0;
  bool kill_on_limit = false;
  bool kill_on_disconnect = false;
  bool background = false;
  uint64_t keep_bytes = 0;  // of the output, in files
  bool login = false;       // shell text runs in the user's login shell
  uint32_t umask = 022;
};

class Exec {
 public:
  // `serial` is unique in this guest's life. `changed` is called when it ended and again when its
  // tree is gone; it may not destroy the exec at once.
  Exec(ExecContext& context, ExecSpec spec, uint64_t serial, std::function<void(Exec&)> changed);
  ~Exec();
  Exec(const Exec&) = delete;
  Exec& operator=(const Exec&) = delete;

  // `started` is called once, later: nothing if the command runs, else why not.
  Result<void> Start(std::function<void(Exec&, std::optional<Error>)> started);

  const std::string& id() const { return spec_.id; }
  const ExecSpec& spec() const { return spec_; }
  bool ended() const { return state_ == State::kEnded; }
  bool tree_gone() const { return tree_ == nullptr; }
  // Nothing of it is left but what can be read: it ended or never started, and so did its tree.
  bool over() const { return (state_ == State::kEnded || failed_) && tree_ == nullptr; }
  bool has_readers() const { return !readers_.empty(); }
  const OutputLog& log() const { return log_; }

  // Ends the whole tree; the reason stands in the exit record. On an ended exec it ends what the
  // command left behind.
  void Kill(ExitReason reason);
  void Signal(int number, bool whole_tree);
  Result<void> Resize(ExecSpec::Window window);
  // Whether processes left behind by an ended command are still there; drops the tree if not.
  void CheckLeftovers();

  std::string StartedJson() const;
  const std::string& exit_json() const { return exit_json_; }  // empty until ended
  std::string StateJson() const;

  void AddReader(OutputReader* reader) { readers_.insert(reader); }
  void RemoveReader(OutputReader* reader);
  // A reader has moved on: there may be room for more.
  void ReaderMoved() { UpdateReading(); }

  // What was asked to be kept in files; null if nothing was.
  const KeptOutput* kept() const { return kept_ ? &*kept_ : nullptr; }

  // Where stdin is written; nothing if there is none or it was closed.
  UniqueFd& stdin_fd() { return stdin_; }
  StdinSink*& stdin_writer() { return stdin_writer_; }
  void CloseStdin();

 private:
  enum class State : uint8_t { kStarting, kRunning, kEnded };
  struct Stream {
    UniqueFd fd;
    RecordType type{};
    bool watched = false;
    bool draining = false;
    uint64_t left = 0;  // while draining: bytes that were there when the command ended
  };

  Result<void> OpenStdio(SpawnRequest& request, std::vector<UniqueFd>& theirs);
  Result<void> OpenTerminal(SpawnRequest& request, std::vector<UniqueFd>& theirs);
  Result<UniqueFd> ScriptFile() const;
  std::vector<std::string> Environment() const;
  Error StartError(const LaunchFailure& failure) const;

  void OnSpawned(const SpawnOutcome& outcome);
  void OnReport(const SupervisorReport& report, bool lost);
  void Running(pid_t pid);
  void NotStarted(Error error, bool answered);
  void LeaderOver(const ChildEnd& end, int64_t still_running);

  void OnReadable(Stream& stream);
  void CloseStream(Stream& stream);
  // Counts a read; whether it was one of many small ones. They cost more than what they bring, so
  // reading rests until more is there.
  bool Chatters(size_t got);
  void Rest();
  void UpdateReading();
  void BeginDrain();
  void WakeReaders();

  void PollTree();
  void TreeGone();
  void MaybeEnd();
  void End(bool lost);
  ExitReason Reason(bool lost) const;
  std::optional<uint64_t> OomKills() const;

  ExecContext& context_;
  ExecSpec spec_;
  const uint64_t serial_;
  std::function<void(Exec&)> changed_;
  std::function<void(Exec&, std::optional<Error>)> started_;
  State state_ = State::kStarting;
  std::optional<KeptOutput> kept_;
  OutputLog log_;
  std::unique_ptr<Tree> tree_;
  CgroupTree* cgroup_ = nullptr;  // tree_, if it is one
  pid_t pid_ = -1;
  pid_t supervisor_ = -1;
  Stream streams_[2];
  UniqueFd stdin_;
  UniqueFd terminal_;  // for resizing
  StdinSink* stdin_writer_ = nullptr;
  std::set<OutputReader*> readers_;

  int64_t started_at_ms_ = 0;
  int64_t started_monotonic_ms_ = 0;
  std::optional<uint64_t> oom_before_;
  bool failed_ = false;  // it did not start, and nothing more will be heard of it
  bool leader_over_ = false;
  ChildEnd leader_end_;
  int64_t ended_monotonic_ms_ = 0;
  int64_t still_running_ = 0;
  bool killing_ = false;
  ExitReason kill_reason_ = ExitReason::kKilled;
  int64_t kill_deadline_ms_ = 0;
  int64_t poll_ms_ = 1;
  uint64_t signals_sent_ = 0;  // bit n: signal n was sent for a caller
  Loop::TimerId spawn_timer_;
  Loop::TimerId timeout_timer_;
  Loop::TimerId kill_timer_;
  Loop::TimerId drain_timer_;
  // Of the current millisecond, see Chatters.
  int64_t reads_at_ms_ = 0;
  int reads_ = 0;
  size_t read_bytes_ = 0;
  bool resting_ = false;
  Loop::TimerId rest_timer_;
  std::string exit_json_;
};

}  // namespace caisson::guest
