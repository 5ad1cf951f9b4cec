#include "guest/guest.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>

#include "base/syscall.h"
#include "guest/children.h"
#include "guest/exec_manager.h"
#include "guest/file_calls.h"
#include "guest/identity.h"
#include "guest/json.h"
#include "guest/loop.h"
#include "guest/protocol.h"
#include "guest/search_calls.h"
#include "guest/server.h"
#include "guest/set_calls.h"
#include "guest/spawner.h"
#include "guest/text.h"
#include "guest/tree.h"
#include "guest/worker.h"

namespace caisson::guest {
namespace {

// Descriptors 0, 1, 2 must be somebody's, or the first sockets would become them.
Result<void> HoldStdio() {
  for (int fd = 0; fd < 3; fd++) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    CAISSON_ASSIGN(Pipe pipe, MakePipe());
    if (::dup2(pipe.read.get(), fd) < 0) return Fail(ErrnoError(errno, "dup2"));
  }
  return {};
}

class Guest {
 public:
  explicit Guest(Config& config) : config_(config), server_(loop_, config.token) {
    config.token.assign(config.token.size(), '\0');
  }

  Result<void> Start() {
    started_ms_ = MonotonicMs();
    CAISSON_TRY(HoldStdio());
    ::signal(SIGPIPE, SIG_IGN);
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    // Orphans of the sandbox come to the guest, also where it is not pid 1.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    ::umask(0);  // modes are given exactly
    supervised_ = !config_.cgroup;
    if (supervised_ && !OpenFile("/proc", O_RDONLY | O_DIRECTORY)) {
      return Fail(ErrorCode::kHostUnsupported,
                  "neither a cgroup-v2 directory nor /proc: commands could not be tracked");
    }
    if (config_.spawner) {
      spawner_.Adopt(std::move(config_.spawner));
    } else {
      CAISSON_TRY(spawner_.Fork(config_.user, config_.filter.get()));
    }
    config_.filter.reset();
    RaiseDescriptorLimit();  // after the fork: commands keep the usual limit
    CAISSON_ASSIGN(identity_, Identity::Establish(config_.user));
    if (!supervised_) {
      auto usable = CgroupTree::Check(config_.cgroup.get());
      if (!usable) {
        return Fail(ErrorCode::kHostUnsupported,
                    "the given cgroup directory cannot be used: " + usable.error().message);
      }
    }
    CAISSON_TRY(loop_.Init());
    CAISSON_TRY(children_.Init(loop_, [this] { Shutdown(); }));
    context_.supervised = supervised_;
    execs_.Install();
    CAISSON_ASSIGN(files_, FileCalls::Open(loop_, server_, children_, identity_, config_));
    files_->Install();
    search_.emplace(*files_);
    search_->Install();
    CAISSON_ASSIGN(sets_, SetCalls::Open(files_->Context(), *files_));
    InstallLife();
    // Last, so that it comes up meanwhile.
    CAISSON_TRY(spawner_.AwaitUp());
    CAISSON_TRY(spawner_.Attach(loop_, [this] { server_.MarkUnclean("the spawner died"); }));
    int flags = ::fcntl(config_.listen.get(), F_GETFL);
    ::fcntl(config_.listen.get(), F_SETFL, flags | O_NONBLOCK);
    return server_.Listen(config_.listen.get());
  }

  Result<void> TellReady() {
    if (!config_.sync) return {};
    auto told = WriteAll(config_.sync.get(), std::string_view(&kSyncReady, 1));
    config_.sync.reset();
    return told;
  }

  void Run() { loop_.Run(); }

 private:
  // Each exec needs a handful; the soft limit is often 1,024.
  static void RaiseDescriptorLimit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  void InstallLife() {
    server_.Route("GET", kPathHello, [this](Connection& c, std::string_view) { Hello(c); },
                  {.open = true, .while_unclean = true});
    server_.Route("GET", kPathHealth, [this](Connection& c, std::string_view) { Health(c); },
                  {.open = false, .while_unclean = true});
    server_.Route("POST", kPathShutdown, [this](Connection& connection, std::string_view) {
      connection.CloseAfterReply();
      connection.OnReplyOver([this](bool) { loop_.Stop(); });
      stopping_ = connection.id();
      execs_.KillAll([this] {
        if (Connection* asker = server_.Find(stopping_)) {
          asker->ReplyJson(200, "{}");
        } else {
          loop_.Stop();
        }
      });
    });
  }

  void Shutdown() {
    execs_.KillAll([this] { loop_.Stop(); });
  }

  void Hello(Connection& connection) {
    utsname names{};
    ::uname(&names);
    JsonWriter json;
    json.BeginObject().Field("protocol", kProtocolVersion);
    json.Field("min_protocol", kMinProtocolVersion).Field("build", CAISSON_VERSION);
    json.Field("arch", names.machine);
    json.Key("features").BeginArray();
    json.String(supervised_ ? "exec.supervisor" : "exec.cgroup2");
    if (::access("/dev/ptmx", R_OK | W_OK) == 0) json.String("exec.pty");
    if (config_.mem_events) json.String("exec.oom_evidence");
    json.String("files").String("files.watch").String("search");
    if (!config_.sets.empty()) json.String("sets");
    json.EndArray();
    const CommandUser& user = config_.user;
    json.Key("user").BeginObject().Field("uid", user.uid).Field("gid", user.gid);
    json.Bytes("name", user.name).Bytes("home", user.home).Bytes("shell", user.shell).EndObject();
    json.Bytes("work_dir", config_.work_dir).Flag("pid1", ::getpid() == 1);
    json.Flag("uid_separation", identity_.separate()).EndObject();
    connection.ReplyJson(200, json.text());
  }

  void Health(Connection& connection) {
    JsonWriter json;
    json.BeginObject().Field("status", server_.unclean() ? "unclean" : "ok");
    if (server_.unclean()) json.Field("unclean_reason", server_.unclean_reason());
    json.Field("execs_running", static_cast<int64_t>(execs_.running()));
    json.Field("uptime_ms", MonotonicMs() - started_ms_).EndObject();
    connection.ReplyJson(200, json.text());
  }

  Config& config_;
  int64_t started_ms_ = 0;
  bool supervised_ = false;
  Identity identity_;
  Loop loop_;
  Children children_;
  Spawner spawner_;
  Server server_;
  ExecContext context_{loop_, server_, children_, spawner_, config_};
  ExecManager execs_{context_};
  std::unique_ptr<FileCalls> files_;
  std::optional<SearchCalls> search_;
  std::unique_ptr<SetCalls> sets_;
  uint64_t stopping_ = 0;
};

}  // namespace

Result<void> Serve(Config& config) {
  // Not destroyed: the process ends with it, and what it owns ends with the process.
  auto* guest = new Guest(config);
  CAISSON_TRY(guest->Start());
  CAISSON_TRY(guest->TellReady());
  guest->Run();
  return {};
}

}  // namespace caisson::guest
