#include "guest/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/syscall.h"
#include "guest/exec_stream.h"
#include "guest/json.h"
#include "guest/signals.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr int64_t kSpawnTimeoutMs = 10'000;
constexpr int64_t kMaxPollMs = 16;
// So many reads in a millisecond that bring no more than this together are too small.
constexpr int kChatterReads = 16;
constexpr size_t kChatterBytes = 16 * 1024;
constexpr int64_t kRestMs = 1;

}  // namespace

Exec::Exec(ExecContext& context, ExecSpec spec, uint64_t serial, std::function<void(Exec&)> changed)
    : context_(context),
      spec_(std::move(spec)),
      serial_(serial),
      changed_(std::move(changed)),
      log_(spec_.head_bytes, spec_.head_bytes == UINT64_MAX ? 0 : spec_.tail_bytes) {
  streams_[0].type = RecordType::kStdout;
  streams_[1].type = RecordType::kStderr;
}

Exec::~Exec() {
  for (Loop::TimerId* timer :
       {&spawn_timer_, &timeout_timer_, &kill_timer_, &drain_timer_, &rest_timer_}) {
    context_.loop.Cancel(*timer);
  }
  for (Stream& stream : streams_) CloseStream(stream);
  CloseStdin();
  if (pid_ > 0 && supervisor_ < 0) context_.children.Forget(pid_);
  for (OutputReader* reader : std::exchange(readers_, {})) reader->Detach();
}

Result<void> Exec::Start(std::function<void(Exec&, std::optional<Error>)> started) {
  if (spec_.keep_bytes > 0) {
    CAISSON_ASSIGN(KeptOutput kept, KeptOutput::Open(spec_.keep_bytes));
    kept_.emplace(std::move(kept));
    log_.KeepIn(&*kept_);
  }
  SpawnRequest request;
  std::vector<UniqueFd> theirs;
  if (spec_.pty) {
    CAISSON_TRY(OpenTerminal(request, theirs));
  } else {
    CAISSON_TRY(OpenStdio(request, theirs));
  }
  request.cwd = spec_.cwd;
  request.umask = spec_.umask;
  request.env = Environment();
  UniqueFd script;
  if (!spec_.argv.empty()) {
    request.argv = spec_.argv;
  } else {
    request.argv = {spec_.login ? context_.config.user.shell : "/bin/sh"};
    if (spec_.login) request.argv.emplace_back("-l");
    if (spec_.command.size() < kMaxArgBytes) {
      request.argv.insert(request.argv.end(), {"-c", spec_.command});
    } else {
      CAISSON_ASSIGN(script, ScriptFile());
      request.script = script.get();
      request.argv.emplace_back("/proc/self/fd/3");
    }
  }
  UniqueFd control;
  if (context_.supervised) {
    CAISSON_ASSIGN(tree_, SupervisedTree::Make(context_.loop, control,
                                               [this](const SupervisorReport& report, bool lost) {
                                                 OnReport(report, lost);
                                               }));
    request.control = control.get();
  } else {
    CAISSON_ASSIGN(auto tree, CgroupTree::Make(context_.config.cgroup.get(),
                                               "exec-" + Decimal(static_cast<int64_t>(serial_))));
    cgroup_ = tree.get();
    request.cgroup = tree->directory();
    tree_ = std::move(tree);
  }
  oom_before_ = OomKills();
  CAISSON_TRY(
      context_.spawner.Start(request, [this](const SpawnOutcome& outcome) { OnSpawned(outcome); }));
  started_ = std::move(started);
  spawn_timer_ = context_.loop.After(kSpawnTimeoutMs, [this] {
    context_.server.MarkUnclean("starting a command did not end");
    NotStarted(Error{ErrorCode::kOutcomeUnknown, "starting the command did not end", {}, {}},
               false);
  });
  return {};
}

Result<void> Exec::OpenStdio(SpawnRequest& request, std::vector<UniqueFd>& theirs) {
  // A pipe whose other end is closed is at its end, and needs no /dev/null in the sandbox.
  CAISSON_ASSIGN(Pipe in, MakePipe());
  request.stdio[0] = theirs.emplace_back(std::move(in.read)).get();
  if (spec_.stdin_pipe) {
    ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
    stdin_ = std::move(in.write);
  }
  for (int i = 0; i < 2; i++) {
    CAISSON_ASSIGN(Pipe pipe, MakePipe());
    ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
    request.stdio[i + 1] = theirs.emplace_back(std::move(pipe.write)).get();
    streams_[i].fd = std::move(pipe.read);
  }
  return {};
}

Result<void> Exec::OpenTerminal(SpawnRequest& request, std::vector<UniqueFd>& theirs) {
  auto master = OpenFile("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK);
  if (!master) {
    return Fail(ErrorCode::kNotSupported, "this sandbox has no terminals (/dev/ptmx)",
                master.error().message);
  }
  int unlocked = 0;
  ::ioctl(master->get(), TIOCSPTLCK, &unlocked);
  int slave = ::ioctl(master->get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return Fail(ErrnoError(errno, "open the terminal"));
  theirs.emplace_back(slave);
  // Programs reopen their terminal by its name.
  if (::geteuid() == 0) {
    (void)!::fchown(slave, context_.config.user.uid, context_.config.user.gid);
    (void)!::fchmod(slave, 0620);
  }
  winsize size{};
  size.ws_row = spec_.pty->rows;
  size.ws_col = spec_.pty->cols;
  ::ioctl(slave, TIOCSWINSZ, &size);
  for (int& fd : request.stdio) fd = slave;
  request.terminal = true;
  // Two more descriptors of the same terminal: one is read, one written, one asked to resize.
  terminal_ = *std::move(master);
  streams_[0].fd.reset(::fcntl(terminal_.get(), F_DUPFD_CLOEXEC, 3));
  stdin_.reset(::fcntl(terminal_.get(), F_DUPFD_CLOEXEC, 3));
  if (!streams_[0].fd || !stdin_) return Fail(ErrnoError(errno, "dup the terminal"));
  return {};
}

Result<UniqueFd> Exec::ScriptFile() const {
  // The shell's first act is to close what it need not have; on the same line, so that the line
  // numbers in its messages are right.
  std::string text = "exec 3<&-; " + spec_.command;
  return MakeAnonymousFile("command", text);
}

std::vector<std::string> Exec::Environment() const {
  const CommandUser& user = context_.config.user;
  std::map<std::string, std::string> env;
  env["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  env["HOME"] = user.home;
  env["USER"] = user.name;
  env["LOGNAME"] = user.name;
  env["SHELL"] = user.shell;
  env["LANG"] = "C.UTF-8";
  env["TERM"] = spec_.pty ? "xterm-256color" : "dumb";
  env["PWD"] = spec_.cwd;
  for (const auto& [name, value] : context_.config.env) env[name] = value;
  for (const auto& [name, value] : spec_.env) env[name] = value;
  std::vector<std::string> list;
  list.reserve(env.size());
  for (const auto& [name, value] : env) list.push_back(name + "=" + value);
  return list;
}

Error Exec::StartError(const LaunchFailure& failure) const {
  const std::string program = spec_.argv.empty() ? "/bin/sh" : spec_.argv[0];
  Error error{ErrorCode::kSpawnFailed, {}, ErrnoName(failure.error), std::nullopt};
  if (failure.step == LaunchStep::kWorkDir) {
    error.code = ErrorCode::kInvalidCwd;
    error.message = "the working directory " + spec_.cwd + " cannot be entered";
  } else if (failure.step == LaunchStep::kExec) {
    switch (failure.error) {
      case ENOENT:
      case ENOTDIR:
        error.code = ErrorCode::kCommandNotFound;
        error.message = program + " does not exist";
        break;
      case E2BIG:
        error.code = ErrorCode::kArgumentTooLarge;
        error.message = "arguments and environment together are larger than the kernel accepts";
        break;
      case ENOMEM:
      case EAGAIN:
        error.message = "the kernel refused to execute " + program;
        break;
      default:
        error.code = ErrorCode::kCommandNotExecutable;
        error.message = program + " cannot be executed";
    }
  } else {
    error.message =
        "the command could not be started (step " + std::string(NameOf(failure.step)) + ")";
  }
  return error;
}

void Exec::OnSpawned(const SpawnOutcome& outcome) {
  if (outcome.pid < 0 || outcome.failure.step != LaunchStep::kNone) {
    NotStarted(StartError(outcome.failure), true);
    return;
  }
  if (context_.supervised) {
    supervisor_ = outcome.pid;  // its own report follows
    return;
  }
  Running(outcome.pid);
  context_.children.Watch(outcome.pid, [this](const ChildEnd& end) {
    LeaderOver(end, cgroup_ == nullptr ? 0 : cgroup_->Living());
  });
}

void Exec::OnReport(const SupervisorReport& report, bool lost) {
  if (lost) {
    if (state_ == State::kStarting) {
      NotStarted(Error{ErrorCode::kSpawnFailed, "the supervisor of the command died", {}, {}},
                 true);
      TreeGone();
      return;
    }
    context_.server.MarkUnclean("the supervisor of a command died");
    if (state_ == State::kRunning) End(true);
    TreeGone();
    return;
  }
  switch (report.kind) {
    case SupervisorReport::Kind::kStarted:
      Running(report.pid);
      break;
    case SupervisorReport::Kind::kFailed:
      NotStarted(StartError(report.failure), true);
      break;
    case SupervisorReport::Kind::kExited:
      LeaderOver(ChildEnd{report.status, report.cpu_ms, report.max_rss_bytes},
                 report.still_running);
      break;
    case SupervisorReport::Kind::kGone:
      TreeGone();
      break;
  }
}

void Exec::NotStarted(Error error, bool answered) {
  context_.loop.Cancel(spawn_timer_);
  failed_ = answered;
  if (auto started = std::exchange(started_, nullptr)) started(*this, std::move(error));
}

void Exec::Running(pid_t pid) {
  context_.loop.Cancel(spawn_timer_);
  pid_ = pid;
  state_ = State::kRunning;
  started_at_ms_ = UnixMs();
  started_monotonic_ms_ = MonotonicMs();
  if (spec_.timeout_ms > 0) {
    timeout_timer_ = context_.loop.After(spec_.timeout_ms, [this] { Kill(ExitReason::kTimeout); });
  }
  if (auto started = std::exchange(started_, nullptr)) started(*this, std::nullopt);
  UpdateReading();
}

void Exec::LeaderOver(const ChildEnd& end, int64_t still_running) {
  if (leader_over_ || state_ == State::kEnded) return;
  leader_over_ = true;
  leader_end_ = end;
  still_running_ = still_running;
  ended_monotonic_ms_ = MonotonicMs();
  context_.loop.Cancel(timeout_timer_);
  BeginDrain();
  MaybeEnd();
}

void Exec::BeginDrain() {
  for (Stream& stream : streams_) {
    if (!stream.fd) continue;
    stream.draining = true;
    if (spec_.pty) continue;
    // What the command wrote is in the pipe by now. What its children add later is not its output.
    int there = 0;
    ::ioctl(stream.fd.get(), FIONREAD, &there);
    stream.left = static_cast<uint64_t>(there);
    if (stream.left == 0) CloseStream(stream);
  }
  // A terminal hands its bytes over a little later; its end comes when nobody has it open.
  if (spec_.pty && streams_[0].fd) {
    drain_timer_ = context_.loop.After(kDrainMs, [this] {
      CloseStream(streams_[0]);
      MaybeEnd();
    });
  }
  UpdateReading();
}

void Exec::OnReadable(Stream& stream) {
  uint64_t slowest = OutputLog::kNoReader;
  for (const OutputReader* reader : readers_) slowest = std::min(slowest, reader->position());
  size_t limit = log_.Room(slowest);
  if (stream.draining && !spec_.pty) {
    limit = static_cast<size_t>(std::min<uint64_t>(limit, stream.left));
  }
  if (limit > 0) {
    long got = log_.TakeFrom(stream.fd.get(), stream.type, limit);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      CloseStream(stream);  // a terminal says EIO at its end
    } else if (got > 0 && stream.draining && !spec_.pty) {
      stream.left -= static_cast<uint64_t>(got);
      if (stream.left == 0) CloseStream(stream);
    }
    if (got > 0) WakeReaders();
    if (got > 0 && !stream.draining && Chatters(static_cast<size_t>(got))) Rest();
    if (got > 0 && spec_.kill_on_limit && log_.over_limit() && !killing_) {
      Kill(ExitReason::kOutputLimit);
    }
  }
  UpdateReading();
  MaybeEnd();
}

bool Exec::Chatters(size_t got) {
  int64_t now = MonotonicMs();
  if (now != reads_at_ms_) {
    reads_at_ms_ = now;
    reads_ = 0;
    read_bytes_ = 0;
  }
  reads_++;
  read_bytes_ += got;
  return reads_ >= kChatterReads && read_bytes_ <= kChatterBytes;
}

void Exec::Rest() {
  if (resting_) return;
  resting_ = true;
  rest_timer_ = context_.loop.After(kRestMs, [this] {
    resting_ = false;
    UpdateReading();
  });
}

void Exec::CloseStream(Stream& stream) {
  if (!stream.fd) return;
  if (stream.watched) context_.loop.Forget(stream.fd.get());
  stream.watched = false;
  stream.fd.reset();
}

void Exec::UpdateReading() {
  if (state_ != State::kRunning) return;
  uint64_t slowest = OutputLog::kNoReader;
  for (const OutputReader* reader : readers_) slowest = std::min(slowest, reader->position());
  bool room = log_.Room(slowest) > 0;
  for (Stream& stream : streams_) {
    // What a command has left behind is taken at once.
    bool wanted = room && (!resting_ || stream.draining);
    if (!stream.fd || stream.watched == wanted) continue;
    // An unwanted descriptor is forgotten, not only masked: a hang-up would be reported for ever.
    if (wanted) {
      Stream* raw = &stream;
      stream.watched =
          context_.loop.Watch(stream.fd.get(), EPOLLIN, [this, raw](uint32_t) { OnReadable(*raw); })
              .has_value();
    } else {
      context_.loop.Forget(stream.fd.get());
      stream.watched = false;
    }
  }
}

void Exec::WakeReaders() {
  for (OutputReader* reader : std::set<OutputReader*>(readers_)) {
    if (readers_.contains(reader)) reader->Wake();
  }
}

void Exec::RemoveReader(OutputReader* reader) {
  readers_.erase(reader);
  UpdateReading();
  if (state_ == State::kEnded) changed_(*this);
}

void Exec::CloseStdin() {
  if (!stdin_) return;
  context_.loop.Forget(stdin_.get());
  stdin_.reset();
}

void Exec::Kill(ExitReason reason) {
  if (tree_ == nullptr || state_ == State::kStarting) return;
  if (!killing_) {
    killing_ = true;
    kill_reason_ = reason;
    kill_deadline_ms_ = MonotonicMs() + kKillGraceMs;
    poll_ms_ = 1;
  }
  tree_->Kill();
  context_.loop.Cancel(kill_timer_);
  kill_timer_ = context_.loop.After(1, [this] { PollTree(); });
}

void Exec::PollTree() {
  if (tree_ == nullptr) return;
  if (tree_->Gone() && (leader_over_ || state_ == State::kEnded)) {
    TreeGone();
    return;
  }
  if (MonotonicMs() >= kill_deadline_ms_) {
    context_.server.MarkUnclean("the end of a killed command was not confirmed");
    if (state_ == State::kRunning) End(true);
    return;
  }
  tree_->Kill();
  poll_ms_ = std::min(poll_ms_ * 2, kMaxPollMs);
  kill_timer_ = context_.loop.After(poll_ms_, [this] { PollTree(); });
}

void Exec::TreeGone() {
  if (tree_ == nullptr) return;
  context_.loop.Cancel(kill_timer_);
  cgroup_ = nullptr;
  // This may be called from within the tree.
  Tree* tree = tree_.release();
  context_.loop.Defer([tree] { delete tree; });
  MaybeEnd();
  if (over()) changed_(*this);
}

void Exec::CheckLeftovers() {
  if ((state_ == State::kEnded || failed_) && tree_ != nullptr && tree_->Gone()) TreeGone();
}

void Exec::MaybeEnd() {
  if (state_ != State::kRunning || !leader_over_) return;
  if (streams_[0].fd || streams_[1].fd) return;
  if (killing_ && tree_ != nullptr) return;  // said only when none is left
  End(false);
}

void Exec::Signal(int number, bool whole_tree) {
  if (state_ != State::kRunning || leader_over_ || tree_ == nullptr) return;
  signals_sent_ |= uint64_t{1} << number;
  if (whole_tree) {
    tree_->SignalAll(number);
  } else {
    tree_->SignalLeader(pid_, number);
  }
}

Result<void> Exec::Resize(ExecSpec::Window window) {
  if (!spec_.pty) return Fail(ErrorCode::kConflict, "the command has no terminal");
  if (state_ != State::kRunning) return Fail(ErrorCode::kExecEnded, "the command has ended");
  winsize size{};
  size.ws_row = window.rows;
  size.ws_col = window.cols;
  if (::ioctl(terminal_.get(), TIOCSWINSZ, &size) != 0) {
    return Fail(ErrnoError(errno, "resize the terminal"));
  }
  return {};
}

std::optional<uint64_t> Exec::OomKills() const {
  int fd = context_.config.mem_events.get();
  if (fd < 0) return std::nullopt;
  char text[1024];
  ssize_t got = ::pread(fd, text, sizeof text, 0);
  if (got <= 0) return std::nullopt;
  std::string_view rest(text, static_cast<size_t>(got));
  while (!rest.empty()) {
    size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    constexpr std::string_view kName = "oom_kill ";
    if (line.starts_with(kName)) return ParseDecimal(line.substr(kName.size()));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return std::nullopt;
}

ExitReason Exec::Reason(bool lost) const {
  if (lost) return ExitReason::kLost;
  if (killing_) return kill_reason_;
  int status = leader_end_.status;
  bool signaled = WIFSIGNALED(status);
  bool killed = (signaled && WTERMSIG(status) == SIGKILL) ||
                (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
  bool by_caller = signaled && (signals_sent_ >> WTERMSIG(status) & 1) != 0;
  if (killed && !by_caller && oom_before_) {
    auto now = OomKills();
    if (now && *now > *oom_before_) return ExitReason::kOom;
  }
  if (by_caller) return ExitReason::kKilled;
  return signaled ? ExitReason::kSignaled : ExitReason::kExited;
}

void Exec::End(bool lost) {
  state_ = State::kEnded;
  for (Loop::TimerId* timer : {&timeout_timer_, &drain_timer_, &rest_timer_}) {
    context_.loop.Cancel(*timer);
  }
  for (Stream& stream : streams_) CloseStream(stream);
  if (!leader_over_) ended_monotonic_ms_ = MonotonicMs();
  if (!leader_over_ && supervisor_ < 0) context_.children.Forget(pid_);
  if (stdin_writer_ != nullptr) stdin_writer_->ExecEnded();
  CloseStdin();
  terminal_.reset();
  log_.Finish();

  int status = leader_end_.status;
  JsonWriter json;
  json.BeginObject();
  if (leader_over_ && WIFEXITED(status)) {
    json.Field("code", WEXITSTATUS(status));
  } else {
    json.Key("code").Null();
  }
  if (leader_over_ && WIFSIGNALED(status)) {
    json.Field("signal", SignalName(WTERMSIG(status)));
  } else {
    json.Key("signal").Null();
  }
  json.Field("reason", NameOf(Reason(lost)));
  json.Field("duration_ms", ended_monotonic_ms_ - started_monotonic_ms_);
  json.Field("cpu_ms", leader_end_.cpu_ms);
  json.Field("max_rss_bytes", leader_end_.max_rss_bytes);
  json.Field("stdout_bytes", static_cast<int64_t>(log_.stdout_bytes()));
  json.Field("stderr_bytes", static_cast<int64_t>(log_.stderr_bytes()));
  json.Key("truncated").BeginObject();
  json.Flag("stdout", log_.skipped(RecordType::kStdout) > 0);
  json.Flag("stderr", log_.skipped(RecordType::kStderr) > 0);
  json.EndObject();
  if (kept_) {
    json.Key("kept").BeginObject();
    json.Field("stdout", static_cast<int64_t>(kept_->size(RecordType::kStdout)));
    json.Field("stderr", static_cast<int64_t>(kept_->size(RecordType::kStderr))).EndObject();
  }
  json.Field("still_running", killing_ && !lost ? 0 : still_running_);
  json.EndObject();
  exit_json_ = json.Take();

  if (still_running_ == 0) CheckLeftovers();
  WakeReaders();
  changed_(*this);
}

std::string Exec::StartedJson() const {
  JsonWriter json;
  json.BeginObject().Field("id", spec_.id).Field("pid", pid_);
  json.Field("started_at_ms", started_at_ms_).EndObject();
  return json.Take();
}

std::string Exec::StateJson() const {
  JsonWriter json;
  json.BeginObject().Field("id", spec_.id);
  json.Field("state", state_ == State::kEnded ? "ended" : "running");
  json.Field("pid", pid_).Field("started_at_ms", started_at_ms_);
  json.Field("offset", static_cast<int64_t>(log_.total()));
  json.Field("first_kept_offset", static_cast<int64_t>(log_.first_kept()));
  std::string text = json.Take();
  text += ",\"exit\":";
  text += exit_json_.empty() ? "null" : exit_json_;
  return text + "}";
}

}  // namespace caisson::guest
