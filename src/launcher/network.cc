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

#include <cstring>

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

bool SendFd(int socket_fd, int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket_fd, &message, MSG_NOSIGNAL) == 1;
}

enum class Received { kFd, kNothingYet, kEnd };

Received ReceiveFd(int socket_fd, UniqueFd& fd) {
  char byte = 0;
  iovec part{&byte, 1};
  int number = -1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof number)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Received::kNothingYet;
  cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return Received::kEnd;
  memcpy(&number, CMSG_DATA(header), sizeof number);
  fd.reset(number);
  return Received::kFd;
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
    if (!made || !SendFd(kOrders, made->get())) break;
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
  Received received = ReceiveFd(maker_.get(), taken);
  if (received == Received::kEnd || (taken && !Order())) Stop();
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
