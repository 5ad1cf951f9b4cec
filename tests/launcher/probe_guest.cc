// A stand-in for caisson-guest in the launcher's tests: it starts up as docs/guest-protocol.md,
// section 8 says, then runs what its listening socket asks for. One request a connection:
//   "sh COMMAND\n"     as a command: own cgroup (v2), uid 1000, inner filter, /bin/sh -c
//   "guest COMMAND\n"  with the guest's own identity and only the outer filter
// Requests are served by `spawn`, which gets the listening socket and the cgroup from `serve`.
// The answer is "CODE BYTES\n" and the output. The configuration's text chooses a way to fail.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/syscall.h"
#include "guest/protocol.h"

namespace {

using caisson::UniqueFd;
namespace guest = caisson::guest;

int FdFromEnvironment(std::string_view name) {
  const char* text = getenv(std::string(name).c_str());
  int fd = text == nullptr ? -1 : atoi(text);
  if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  unsetenv(std::string(name).c_str());
  return fd;
}

struct Probe {
  int listen = FdFromEnvironment(guest::kEnvListenFd);
  int token = FdFromEnvironment(guest::kEnvTokenFd);
  int config = FdFromEnvironment(guest::kEnvConfigFd);
  int filter = FdFromEnvironment(guest::kEnvFilterFd);
  int cgroup = FdFromEnvironment(guest::kEnvCgroupFd);
  int memory_events = FdFromEnvironment(guest::kEnvMemEventsFd);
  int spawner = FdFromEnvironment(guest::kEnvSpawnerFd);
  int sync = FdFromEnvironment(guest::kEnvSyncFd);
  std::string filter_bytes;
  bool separate = true;  // commands have a uid of their own
};

void LoadInnerFilter(const Probe& probe) {
  sock_fprog program{static_cast<unsigned short>(probe.filter_bytes.size() / sizeof(sock_filter)),
                     reinterpret_cast<sock_filter*>(const_cast<char*>(probe.filter_bytes.data()))};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) _exit(120);
}

// A directory of the delegated tree for this command, entered before the uid changes.
void EnterOwnCgroup(const Probe& probe) {
  std::string name = "x" + std::to_string(getpid());
  if (mkdirat(probe.cgroup, name.c_str(), 0755) < 0) _exit(121);
  UniqueFd procs(openat(probe.cgroup, (name + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  if (!procs || write(procs.get(), "0", 1) != 1) _exit(122);
}

[[noreturn]] void RunCommand(const Probe& probe, bool as_command, const char* text, int output) {
  if (as_command && probe.cgroup >= 0) EnterOwnCgroup(probe);
  dup2(output, 1);
  dup2(output, 2);
  setsid();
  if (as_command) {
    if (probe.separate &&
        (syscall(SYS_setgroups, 0, nullptr) < 0 || syscall(SYS_setresgid, 1000, 1000, 1000) < 0 ||
         syscall(SYS_setresuid, 1000, 1000, 1000) < 0)) {
      _exit(123);
    }
    setenv("HOME", "/home/user", 1);
    if (chdir("/workspace") < 0) _exit(124);
    LoadInnerFilter(probe);
  }
  execl("/bin/sh", "sh", "-c", text, nullptr);
  _exit(127);
}

void Serve(const Probe& probe, UniqueFd peer) {
  std::string request;
  char c = 0;
  while (read(peer.get(), &c, 1) == 1 && c != '\n') request += c;
  size_t space = request.find(' ');
  if (space == request.npos) return;
  bool as_command = request.substr(0, space) == "sh";
  std::string text = request.substr(space + 1);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return;
  pid_t child = fork();
  if (child == 0) RunCommand(probe, as_command, text.c_str(), ends[1]);
  close(ends[1]);
  std::string output;
  char buffer[65536];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0 && output.size() < 1 << 20;) {
    output.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  int status = 255 << 8;
  if (child > 0) waitpid(child, &status, 0);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  static_cast<void>(caisson::WriteAll(
      peer.get(), std::to_string(code) + " " + std::to_string(output.size()) + "\n" + output));
}

// Sits among the commands and starts them.
[[noreturn]] void Spawner(const Probe& probe) {
  for (;;) {
    UniqueFd peer(accept4(probe.listen, nullptr, nullptr, SOCK_CLOEXEC));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!peer) continue;
    if (fork() == 0) {
      Serve(probe, std::move(peer));
      _exit(0);
    }
  }
}

// Over the pair between `serve` and `spawn`: the listening socket and, if there is one, the cgroup.
struct Parcel {
  char letter = 'D';
  iovec part{&letter, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};

  Parcel() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
};

void SendDescriptors(const Probe& probe) {
  Parcel parcel;
  int fds[2] = {probe.listen, probe.cgroup};
  size_t bytes = (probe.cgroup < 0 ? 1 : 2) * sizeof(int);
  parcel.message.msg_controllen =
      static_cast<decltype(parcel.message.msg_controllen)>(CMSG_SPACE(bytes));
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = static_cast<decltype(header->cmsg_len)>(CMSG_LEN(bytes));
  memcpy(CMSG_DATA(header), fds, bytes);
  if (sendmsg(probe.spawner, &parcel.message, MSG_NOSIGNAL) != 1) _exit(10);
}

void ReceiveDescriptors(Probe& probe) {
  Parcel parcel;
  if (recvmsg(probe.spawner, &parcel.message, MSG_CMSG_CLOEXEC) != 1) _exit(0);  // `serve` ended
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  if (header == nullptr) _exit(11);
  int fds[2] = {-1, -1};
  memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  probe.listen = fds[0];
  probe.cgroup = fds[1];
}

void Say(const Probe& probe, std::string_view text) {
  static_cast<void>(caisson::WriteAll(probe.sync, text));
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  bool spawn = std::string_view(arguments[1]) == "spawn";
  Probe probe;
  std::string config = caisson::ReadFromStart(probe.config, 4096).value_or(std::string());
  if (spawn) {
    probe.filter_bytes = caisson::ReadAll(probe.filter, 1 << 20).value_or(std::string());
    probe.separate = config != "one uid";
    ReceiveDescriptors(probe);
    Spawner(probe);
  }
  std::string token = caisson::ReadAll(probe.token, 4096).value_or(std::string());
  if (token != "token") return 9;
  if (config == "exit") return 3;
  if (config == "hang") pause();
  if (config == "crash") abort();
  if (config == "refuse") {
    Say(probe, "Fno such user\n");
    return 1;
  }
  if (config == "babble") Say(probe, "Z");
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  SendDescriptors(probe);
  Say(probe, std::string(1, guest::kSyncReady));
  close(probe.listen);
  for (;;) {
    if (waitpid(-1, nullptr, 0) < 0) pause();
  }
}
