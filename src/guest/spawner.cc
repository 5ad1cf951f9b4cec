#include "guest/spawner.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/fd_passing.h"
#include "base/syscall.h"
#include "guest/identity.h"
#include "guest/supervisor.h"

namespace caisson::guest {
namespace {

constexpr size_t kInlineBytes = 64 * 1024;  // of strings in a message; more go by an anonymous file
constexpr size_t kMaxFds = 7;
constexpr size_t kMaxStringBytes = 64 * 1024 * 1024;

enum RequestFlag : uint32_t {
  kScript = 1,
  kCgroup = 2,
  kControl = 4,
  kStrings = 8,
  kTerminal = 16
};

struct RequestHead {
  uint64_t id = 0;
  uint32_t flags = 0;
  uint32_t argc = 0;
  uint32_t envc = 0;
  uint32_t umask = 0;
  uint32_t bytes = 0;  // of the strings: cwd, argv, env, each with its NUL
};

struct Answer {
  uint64_t id = 0;
  SpawnOutcome outcome;
};

// The process itself. Single-threaded, blocking; holds nothing but its socket and the filter.
class SpawnerProcess {
 public:
  // `user` and `program` (a filter, or empty) outlive it.
  SpawnerProcess(int socket, const CommandUser& user, std::string& program)
      : socket_(socket),
        identity_{Identity::Switches(user), user.uid, user.gid, user.groups.data(),
                  user.groups.size()} {
    filter_.len = static_cast<unsigned short>(program.size() / sizeof(sock_filter));
    filter_.filter = reinterpret_cast<sock_filter*>(program.data());
  }

  [[noreturn]] void Run() {
    // Where commands have its uid (without root), its memory would be theirs: to read, and to write
    // commands into that run without the filter. An exec resets what the guest set for itself.
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::prctl(PR_SET_NAME, "caisson-spawn", 0, 0, 0);
    ::umask(022);
    rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (int signal = 1; signal < 65; signal++) ::signal(signal, SIG_DFL);
    failure_ = MakeSharedFailure();
    if (failure_ == nullptr) ::_exit(1);
    // For supervisors; without it they say so.
    proc_ = ::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Answer up;
    if (::send(socket_, &up, sizeof up, MSG_NOSIGNAL) < 0) ::_exit(0);
    for (;;) Serve();
  }

 private:
  void Serve() {
    RequestHead head;
    iovec parts[2] = {{&head, sizeof head}, {inline_, sizeof inline_}};
    Answer answer;
    {
      // Closed before the answer: the guest must be the only reader and writer then.
      UniqueFd fds[kMaxFds];
      ReceivedMessage received = ReceiveWithFds(socket_, parts, fds);
      if (received.size < static_cast<ssize_t>(sizeof head)) ::_exit(0);  // the guest is gone
      answer = {head.id, Handle(head, {fds, received.fd_count})};
    }
    if (::send(socket_, &answer, sizeof answer, MSG_NOSIGNAL) < 0) ::_exit(0);
  }

  SpawnOutcome Handle(const RequestHead& head, std::span<const UniqueFd> fds) {
    LaunchPlan plan;
    size_t next = 0;
    auto take = [&](bool given) { return given && next < fds.size() ? fds[next++].get() : -1; };
    for (int& fd : plan.stdio) fd = take(true);
    plan.script = take((head.flags & kScript) != 0);
    plan.cgroup = take((head.flags & kCgroup) != 0);
    int control = take((head.flags & kControl) != 0);
    int strings = take((head.flags & kStrings) != 0);
    std::string large;
    char* text = inline_;
    if (strings >= 0) {
      auto content = ReadAll(strings, kMaxStringBytes);
      if (!content) return SpawnOutcome{-1, {LaunchStep::kClone, ENOMEM}};
      large = *std::move(content);
      text = large.data();
    }
    std::vector<char*> argv;
    std::vector<char*> env;
    plan.cwd = text;
    text += std::strlen(text) + 1;
    for (auto [list, size] : {std::pair(&argv, head.argc), std::pair(&env, head.envc)}) {
      list->reserve(size + 1);
      for (uint32_t i = 0; i < size; i++) {
        list->push_back(text);
        text += std::strlen(text) + 1;
      }
      list->push_back(nullptr);
    }
    plan.path = "/usr/local/bin:/usr/bin:/bin";
    for (const char* entry : env) {
      if (entry != nullptr && std::strncmp(entry, "PATH=", 5) == 0) plan.path = entry + 5;
    }
    plan.argv = argv.data();
    plan.env = env.data();
    plan.terminal = (head.flags & kTerminal) != 0;
    plan.umask = head.umask;
    plan.identity = &identity_;
    plan.filter = filter_.len == 0 ? nullptr : &filter_;
    plan.failure = failure_;
    plan.sibling = control < 0;
    if (control >= 0) return Supervise(plan, control);
    pid_t pid = Launch(plan);
    return SpawnOutcome{pid, *failure_};
  }

  SpawnOutcome Supervise(LaunchPlan& plan, int control) {
    pid_t pid = ForkProcess(true);
    if (pid < 0) return SpawnOutcome{-1, {LaunchStep::kClone, errno}};
    if (pid == 0) {
      ::close(socket_);
      // Its own page: the spawner goes on and uses its own for others.
      plan.failure = MakeSharedFailure();
      if (plan.failure == nullptr) ::_exit(1);
      RunSupervisor(plan, control, proc_);
    }
    return SpawnOutcome{pid, {}};
  }

  const int socket_;
  const LaunchIdentity identity_;
  sock_fprog filter_{};
  int proc_ = -1;
  LaunchFailure* failure_ = nullptr;
  char inline_[kInlineBytes];
};

// The seccomp program in the descriptor; empty without one.
Result<std::string> ReadFilter(int fd) {
  if (fd < 0) return std::string();
  CAISSON_ASSIGN(std::string program, ReadFromStart(fd, sizeof(sock_filter) * BPF_MAXINSNS));
  if (program.empty() || program.size() % sizeof(sock_filter) != 0) {
    return Fail(ErrorCode::kInvalidConfig, "the seccomp program has an impossible size");
  }
  return program;
}

}  // namespace

Result<UniqueFd> MakeAnonymousFile(const char* name, std::string_view content) {
  auto memory = MakeSealedMemFd(name, content);
  if (memory) return memory;
  CAISSON_ASSIGN(UniqueFd file, OpenFile("/tmp", O_TMPFILE | O_RDWR, 0644));
  CAISSON_TRY(WriteAll(file.get(), content));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return Fail(ErrnoError(errno, "lseek"));
  return file;
}

Result<void> Spawner::Fork(const CommandUser& user, int filter) {
  CAISSON_ASSIGN(std::string program, ReadFilter(filter));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(ErrnoError(errno, "socketpair"));
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  pid_t pid = ::fork();
  if (pid < 0) return Fail(ErrnoError(errno, "fork the spawner"));
  if (pid == 0) {
    // Everything of the guest's is closed but the socket, moved to 3.
    if (theirs.get() == 3) {
      (void)theirs.release();
    } else if (::dup3(theirs.get(), 3, O_CLOEXEC) < 0) {
      ::_exit(1);
    }
    if (::syscall(SYS_close_range, 4, ~0U, 0) != 0) {
      for (int fd = 4; fd < 4096; fd++) ::close(fd);
    }
    // On the heap: its buffer is large, and it lives until the process ends.
    auto* process = new SpawnerProcess(3, user, program);
    process->Run();
  }
  socket_ = std::move(ours);
  return {};
}

Result<void> RunSpawner(const Config& config) {
  CAISSON_ASSIGN(std::string program, ReadFilter(config.filter.get()));
  auto* process = new SpawnerProcess(config.spawner.get(), config.user, program);
  process->Run();
}

Result<void> Spawner::AwaitUp() {
  Answer up;
  ssize_t got;
  do {
    got = ::recv(socket_.get(), &up, sizeof up, 0);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof up) && up.id == 0) return {};
  return Fail(ErrorCode::kLaunchFailed, "the spawner ended before it was there");
}

Result<void> Spawner::Attach(Loop& loop, std::function<void()> lost) {
  loop_ = &loop;
  lost_ = std::move(lost);
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  return loop.Watch(socket_.get(), EPOLLIN, [this](uint32_t) { ReadAnswers(); });
}

Result<void> Spawner::Start(const SpawnRequest& request, Done done) {
  RequestHead head;
  head.id = next_++;
  head.argc = static_cast<uint32_t>(request.argv.size());
  head.envc = static_cast<uint32_t>(request.env.size());
  std::string strings = request.cwd;
  strings += '\0';
  for (const auto* list : {&request.argv, &request.env}) {
    for (const std::string& text : *list) strings.append(text.c_str(), text.size() + 1);
  }
  if (strings.size() > kMaxStringBytes) {
    return Fail(ErrorCode::kArgumentTooLarge, "arguments and environment exceed 64 MiB");
  }
  head.bytes = static_cast<uint32_t>(strings.size());
  int fds[kMaxFds];
  size_t count = 0;
  for (int fd : request.stdio) fds[count++] = fd;
  auto add = [&](int fd, RequestFlag flag) {
    if (fd < 0) return;
    fds[count++] = fd;
    head.flags |= flag;
  };
  add(request.script, kScript);
  add(request.cgroup, kCgroup);
  add(request.control, kControl);
  if (request.terminal) head.flags |= kTerminal;
  head.umask = request.umask;
  UniqueFd file;
  if (strings.size() > kInlineBytes) {
    CAISSON_ASSIGN(file, MakeAnonymousFile("arguments", strings));
    add(file.get(), kStrings);
    strings.clear();
  }
  iovec parts[2] = {{&head, sizeof head}, {strings.data(), strings.size()}};
  if (SendWithFds(socket_.get(), parts, {fds, count}) < 0) {
    // A full queue means dozens of starts are waiting: the caller may try again.
    return Fail(ErrorCode::kSpawnFailed, "the spawner does not take requests", ErrnoName(errno));
  }
  waiting_.emplace(head.id, std::move(done));
  return {};
}

void Spawner::ReadAnswers() {
  for (;;) {
    Answer answer;
    ssize_t got = ::recv(socket_.get(), &answer, sizeof answer, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got != static_cast<ssize_t>(sizeof answer)) {
      loop_->Forget(socket_.get());
      for (auto& [id, done] : std::exchange(waiting_, {})) {
        done(SpawnOutcome{-1, {LaunchStep::kClone, ESRCH}});
      }
      if (auto lost = std::exchange(lost_, nullptr)) lost();
      return;
    }
    auto it = waiting_.find(answer.id);
    if (it == waiting_.end()) continue;
    Done done = std::move(it->second);
    waiting_.erase(it);
    done(answer.outcome);
  }
}

}  // namespace caisson::guest
