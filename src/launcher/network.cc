#include "launcher/network.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd_passing.h"
#include "launcher/process.h"

namespace caisson::launcher {

Attempt<void> LoopbackUp() {
  UniqueFd socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return Tried("socket", "inet");
  struct ifreq request{};
  memcpy(request.ifr_name, "lo", 3);
  request.ifr_flags = IFF_UP;
  if (ioctl(socket_fd.get(), SIOCSIFFLAGS, &request) < 0) return Tried("bring up", "lo");
  return {};
}

namespace {

// A namespace that nothing but the descriptor holds: the next unshare leaves it.
Attempt<UniqueFd> MakeNetwork() {
  if (syscall(SYS_unshare, CLONE_NEWNET) < 0) return Tried("unshare", "network namespace");
  CAISSON_TRY(LoopbackUp());
  UniqueFd made(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!made) return Tried("open", "network namespace");
  return made;
}

[[noreturn]] void RunMaker(int orders) {
  // Nothing of the launcher's stays open here, its control socket above all: the server sees by it
  // that the launcher has ended.
  constexpr int kOrders = 0;
  if (dup2(orders, kOrders) < 0 || syscall(SYS_close_range, kOrders + 1, ~0u, 0) < 0) _exit(1);
  prctl(PR_SET_NAME, "caisson-network");
  sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
  char byte;
  while (read(kOrders, &byte, 1) == 1) {
    Attempt<UniqueFd> made = MakeNetwork();
    if (!made) break;
    iovec part{&byte, 1};
    int fd = made->get();
    if (SendWithFds(kOrders, {&part, 1}, {&fd, 1}) != 1) break;
  }
  _exit(0);
}

}  // namespace

NetworkPool::~NetworkPool() { Stop(); }

UniqueFd NetworkPool::Take() {
  if (!maker_) {
    if (++demand_ == 2) Start();
    return {};
  }
  UniqueFd taken;
  char byte;
  iovec part{&byte, 1};
  ReceivedMessage received = ReceiveWithFds(maker_.get(), {&part, 1}, {&taken, 1}, MSG_DONTWAIT);
  bool none_yet = received.size < 0 && errno == EAGAIN;
  if (!none_yet && (!taken || !Order())) Stop();
  return taken;
}

void NetworkPool::Start() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) return;
  maker_.reset(pair[0]);
  UniqueFd theirs(pair[1]);
  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) RunMaker(theirs.get());
  if (pid > 0) pidfd_.reset(pidfd);
  for (int i = 0; i < kReady; i++) {
    if (pid > 0 && Order()) continue;
    Stop();
    return;
  }
}

bool NetworkPool::Order() {
  char byte = 0;
  return send(maker_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

// For good: what failed once will fail again, and sandboxes can do without.
void NetworkPool::Stop() {
  maker_.reset();
  if (!pidfd_) return;
  Kill(pidfd_.get());
  siginfo_t info{};
  constexpr auto kPidFd = static_cast<idtype_t>(3);  // P_PIDFD
  while (waitid(kPidFd, static_cast<id_t>(pidfd_.get()), &info, WEXITED) < 0 && errno == EINTR) {
  }
  pidfd_.reset();
}

}  // namespace caisson::launcher
