#include "guest/supervisor.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr int kRetryMs = 2;  // between two rounds of a kill that is not yet complete

struct ProcessRow {
  pid_t pid = 0;
  pid_t parent = 0;
  bool zombie = false;
};

class Supervisor {
 public:
  // A descriptor of its own for /proc: a shared one would share its position with others.
  Supervisor(int control, int proc)
      : control_(control), proc_(::openat(proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {}

  [[noreturn]] void Run(LaunchPlan& plan) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::prctl(PR_SET_NAME, "caisson-super", 0, 0, 0);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);
    int signals = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    SupervisorReport report;
    if (proc_ < 0 || signals < 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
      report.kind = SupervisorReport::Kind::kFailed;
      report.failure = LaunchFailure{LaunchStep::kClone, errno};
      Send(report);
      ::_exit(1);
    }
    plan.sibling = false;
    leader_ = Launch(plan);
    for (int fd : plan.stdio) ::close(fd);
    if (plan.script >= 0) ::close(plan.script);
    report.pid = leader_;
    report.failure = *plan.failure;
    if (report.failure.step != LaunchStep::kNone) report.kind = SupervisorReport::Kind::kFailed;
    Send(report);
    if (report.kind == SupervisorReport::Kind::kFailed) ::_exit(0);
    for (;;) Step(signals);
  }

 private:
  void Send(const SupervisorReport& report) {
    // The guest reads these; a full queue cannot be with four messages in a life.
    (void)::send(control_, &report, sizeof report, MSG_NOSIGNAL);
  }

  void Step(int signals) {
    if (killing_) KillRound();
    Reap();
    pollfd waits[2] = {{signals, POLLIN, 0}, {control_, POLLIN, 0}};
    ::poll(waits, 2, killing_ ? kRetryMs : -1);
    signalfd_siginfo info;
    while (::read(signals, &info, sizeof info) > 0) {
    }
    if (waits[1].revents == 0) return;
    SupervisorOrder order;
    ssize_t got = ::recv(control_, &order, sizeof order, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got != static_cast<ssize_t>(sizeof order)) {
      killing_ = true;  // the guest is gone, or has given the exec up
      return;
    }
    Obey(order);
  }

  void Obey(const SupervisorOrder& order) {
    switch (order.kind) {
      case SupervisorOrder::Kind::kKill:
        killing_ = true;
        break;
      case SupervisorOrder::Kind::kSignalLeader:
        // Only this process reaps the leader, so its id cannot have become another's.
        if (!leader_over_) ::kill(-leader_, order.signal);
        break;
      case SupervisorOrder::Kind::kSignalTree:
        for (pid_t pid : Descendants()) ::kill(pid, order.signal);
        break;
    }
  }

  void Reap() {
    for (;;) {
      int status = 0;
      rusage usage{};
      pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
      if (pid < 0 && errno == EINTR) continue;
      if (pid < 0) break;  // ECHILD
      if (pid == 0) return;
      if (pid != leader_ || leader_over_) continue;
      leader_over_ = true;
      SupervisorReport report;
      report.kind = SupervisorReport::Kind::kExited;
      report.pid = pid;
      report.status = status;
      report.cpu_ms = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                      (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
      report.max_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
      report.still_running = static_cast<int64_t>(Descendants().size());
      Send(report);
    }
    SupervisorReport report;
    report.kind = SupervisorReport::Kind::kGone;
    Send(report);
    ::_exit(0);
  }

  // Everything is stopped first, so that what is killed has not just forked. New ones appear until
  // all are stopped.
  void KillRound() {
    std::vector<pid_t> stopped;
    for (int pass = 0; pass < 16; pass++) {
      std::vector<pid_t> found = Descendants();
      bool fresh = false;
      for (pid_t pid : found) {
        if (std::find(stopped.begin(), stopped.end(), pid) != stopped.end()) continue;
        ::kill(pid, SIGSTOP);
        stopped.push_back(pid);
        fresh = true;
      }
      if (!fresh) break;
    }
    for (pid_t pid : stopped) ::kill(pid, SIGKILL);
  }

  // Living descendants of this process, from one reading of /proc.
  std::vector<pid_t> Descendants() {
    std::vector<ProcessRow> rows = ReadProcesses();
    std::sort(rows.begin(), rows.end(),
              [](const ProcessRow& a, const ProcessRow& b) { return a.parent < b.parent; });
    std::vector<pid_t> living;
    std::vector<pid_t> queue{::getpid()};
    for (size_t i = 0; i < queue.size(); i++) {
      auto row = std::lower_bound(rows.begin(), rows.end(), queue[i],
                                  [](const ProcessRow& a, pid_t parent) { return a.parent < parent; });
      for (; row != rows.end() && row->parent == queue[i]; ++row) {
        queue.push_back(row->pid);
        if (!row->zombie) living.push_back(row->pid);
      }
    }
    return living;
  }

  std::vector<ProcessRow> ReadProcesses() {
    std::vector<ProcessRow> rows;
    ::lseek(proc_, 0, SEEK_SET);
    alignas(8) char buffer[8192];
    for (;;) {
      long got = ::syscall(SYS_getdents64, proc_, buffer, sizeof buffer);
      if (got <= 0) return rows;
      for (long at = 0; at < got;) {
        // struct linux_dirent64: u64 ino, s64 off, u16 reclen, u8 type, char name[].
        unsigned short length = 0;
        std::memcpy(&length, buffer + at + 16, sizeof length);
        const char* name = buffer + at + 19;
        at += length;
        auto pid = ParseDecimal(name);
        ProcessRow row;
        if (pid && ReadProcess(static_cast<pid_t>(*pid), row)) rows.push_back(row);
      }
    }
  }

  bool ReadProcess(pid_t pid, ProcessRow& row) {
    std::string path = Decimal(pid) + "/stat";
    int fd = ::openat(proc_, path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char text[512];
    ssize_t got = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (got <= 0) return false;
    // "pid (name) state parent …"; the name may hold anything, ')' included.
    std::string_view line(text, static_cast<size_t>(got));
    size_t end = line.rfind(')');
    if (end == std::string_view::npos || line.size() < end + 5) return false;
    row.pid = pid;
    row.zombie = line[end + 2] == 'Z' || line[end + 2] == 'X';
    std::string_view rest = line.substr(end + 4);
    auto parent = ParseDecimal(rest.substr(0, rest.find(' ')));
    row.parent = static_cast<pid_t>(parent.value_or(0));
    return parent.has_value();
  }

  const int control_;
  const int proc_;
  pid_t leader_ = -1;
  bool leader_over_ = false;
  bool killing_ = false;
};

}  // namespace

void RunSupervisor(LaunchPlan& plan, int control, int proc) { Supervisor(control, proc).Run(plan); }

}  // namespace caisson::guest
