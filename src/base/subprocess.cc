#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/syscall.h"

namespace caisson {
namespace {

// Own numbers: glibc 2.36 has P_PIDFD but older headers do not.
constexpr auto kWaitPidFd = static_cast<idtype_t>(3);

int PollMillis(const Clock& clock, Deadline deadline) {
  if (deadline.never()) return -1;
  auto left = std::chrono::ceil<Millis>(deadline.time() - clock.MonoNow()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

// RAII for the two C objects of posix_spawn.
struct FileActions {
  posix_spawn_file_actions_t actions;
  FileActions() { posix_spawn_file_actions_init(&actions); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
};
struct Attributes {
  posix_spawnattr_t attributes;
  Attributes() { posix_spawnattr_init(&attributes); }
  ~Attributes() { posix_spawnattr_destroy(&attributes); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The descriptors are moved out of the way first (to `moved`), so that mapping one to a number that
// another one occupies cannot clobber it.
Result<void> AddDescriptors(const SpawnSpec& spec, FileActions& file,
                            std::vector<UniqueFd>& moved) {
  int highest = 2;
  for (const auto& descriptor : spec.descriptors) highest = std::max(highest, descriptor.child_fd);
  for (const auto& descriptor : spec.descriptors) {
    UniqueFd copy(::fcntl(descriptor.own_fd, F_DUPFD_CLOEXEC, highest + 1));
    if (!copy) return Fail(ErrnoError(errno, "duplicate a descriptor for a child"));
    posix_spawn_file_actions_adddup2(&file.actions, copy.get(), descriptor.child_fd);
    moved.push_back(std::move(copy));
  }
  for (int fd = 0; fd <= 2; fd++) {
    bool named = std::ranges::any_of(spec.descriptors, [&](auto& d) { return d.child_fd == fd; });
    if (named) continue;
    posix_spawn_file_actions_addopen(&file.actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY,
                                     0);
  }
  // Everything above is closed in the child, close-on-exec or not: what a library opened without
  // the flag must not leak. Gaps between named numbers stay open only if close-on-exec fails them.
  posix_spawn_file_actions_addclosefrom_np(&file.actions, highest + 1);
  return {};
}

}  // namespace

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    KillAndReap();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
  }
  return *this;
}

ChildProcess::~ChildProcess() { KillAndReap(); }

void ChildProcess::KillAndReap() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // safe: not reaped yet, so the number is still its own
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void ChildProcess::Detach() { pid_ = -1; }

Result<void> ChildProcess::Signal(int signal) const {
  if (pid_ < 0) return Fail(ErrorCode::kConflict, "the process has been waited for");
  if (::kill(pid_, signal) != 0) return Fail(ErrnoError(errno, "signal a child process"));
  return {};
}

Result<ExitStatus> ChildProcess::Wait(const Clock& clock, Deadline deadline) {
  if (pid_ < 0) return Fail(ErrorCode::kConflict, "the process has been waited for");
  for (;;) {
    pollfd poll_fd{pidfd_.get(), POLLIN, 0};
    int ready = ::poll(&poll_fd, 1, PollMillis(clock, deadline));
    if (ready > 0) break;
    if (ready == 0) {
      return Fail(ErrorCode::kDeadlineExceeded, "the child process did not end in time");
    }
    if (errno != EINTR) return Fail(ErrnoError(errno, "poll a pidfd"));
  }
  siginfo_t info{};
  while (::waitid(kWaitPidFd, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
    if (errno != EINTR) return Fail(ErrnoError(errno, "waitid"));
  }
  pid_ = -1;
  if (info.si_code == CLD_EXITED) return ExitStatus{info.si_status, 0};
  return ExitStatus{0, info.si_status};
}

Result<ChildProcess> Spawn(const SpawnSpec& spec) {
  FileActions file;
  Attributes attributes;
  std::vector<UniqueFd> moved;
  CAISSON_TRY(AddDescriptors(spec, file, moved));

  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes.attributes, &none);
  posix_spawnattr_setsigdefault(&attributes.attributes, &all);
  int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (spec.new_session) flags |= POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&attributes.attributes, static_cast<short>(flags));

  std::vector<std::string> arguments;
  arguments.push_back(spec.argv0.empty() ? spec.program : spec.argv0);
  arguments.insert(arguments.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<std::string> environment = spec.environment;
  pid_t pid = -1;
  int error = ::posix_spawn(&pid, spec.program.c_str(), &file.actions, &attributes.attributes,
                            Pointers(arguments).data(), Pointers(environment).data());
  if (error != 0) return Fail(ErrnoError(error, "start " + spec.program));
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ChildProcess child(pid, std::move(pidfd));
  if (child.pidfd() < 0) return Fail(ErrnoError(errno, "pidfd_open"));
  return child;
}

namespace {

struct Stream {
  UniqueFd fd;
  std::string* data;
};

// Reads what is there; false at end of file.
Result<bool> ReadSome(Stream& stream, size_t limit) {
  std::array<char, 16384> buffer;
  ssize_t got = ::read(stream.fd.get(), buffer.data(), buffer.size());
  if (got < 0) {
    if (errno == EINTR || errno == EAGAIN) return true;
    return Fail(ErrnoError(errno, "read the output of a child process"));
  }
  stream.data->append(buffer.data(), static_cast<size_t>(got));
  if (stream.data->size() > limit) {
    return Fail(ErrorCode::kFileTooLarge, "the output of the child process exceeds its limit");
  }
  return got > 0;
}

}  // namespace

Result<CommandOutput> RunCommand(const SpawnSpec& spec, std::string_view input, size_t limit,
                                 const Clock& clock, Deadline deadline) {
  CAISSON_ASSIGN(UniqueFd stdin_file, MakeSealedMemFd("stdin", input));
  CAISSON_ASSIGN(Pipe out, MakePipe());
  CAISSON_ASSIGN(Pipe err, MakePipe());
  SpawnSpec with_pipes = spec;
  with_pipes.descriptors.push_back({0, stdin_file.get()});
  with_pipes.descriptors.push_back({1, out.write.get()});
  with_pipes.descriptors.push_back({2, err.write.get()});
  CAISSON_ASSIGN(ChildProcess child, Spawn(with_pipes));
  out.write.reset();
  err.write.reset();

  CommandOutput result;
  std::array<Stream, 2> streams{Stream{std::move(out.read), &result.out},
                                Stream{std::move(err.read), &result.err}};
  while (streams[0].fd || streams[1].fd) {
    std::array<pollfd, 2> polls{pollfd{streams[0].fd.get(), POLLIN, 0},
                                pollfd{streams[1].fd.get(), POLLIN, 0}};
    int ready = ::poll(polls.data(), polls.size(), PollMillis(clock, deadline));
    if (ready == 0) {
      return Fail(ErrorCode::kDeadlineExceeded, spec.program + " did not end in time");
    }
    if (ready < 0 && errno != EINTR) return Fail(ErrnoError(errno, "poll"));
    for (size_t i = 0; ready > 0 && i < polls.size(); i++) {
      if (polls[i].fd < 0 || polls[i].revents == 0) continue;
      CAISSON_ASSIGN(bool more, ReadSome(streams[i], limit));
      if (!more) streams[i].fd.reset();
    }
  }
  CAISSON_ASSIGN(result.status, child.Wait(clock, deadline));
  return result;
}

}  // namespace caisson
