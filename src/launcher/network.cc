#include "launcher/network.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/unique_fd.h"

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

UniqueFd NetworkPool::Take() {
  demanded_ = true;
  if (ready_.empty()) return {};
  UniqueFd taken = std::move(ready_.back());
  ready_.pop_back();
  return taken;
}

void NetworkPool::Fill() {
  constexpr const char* kOwn = "/proc/self/ns/net";
  UniqueFd home(open(kOwn, O_RDONLY | O_CLOEXEC));
  failed_ = !home || syscall(SYS_unshare, CLONE_NEWNET) < 0;
  if (failed_) return;
  UniqueFd made(open(kOwn, O_RDONLY | O_CLOEXEC));
  failed_ = !LoopbackUp() || !made;
  if (syscall(SYS_setns, home.get(), CLONE_NEWNET) < 0) _exit(1);
  if (!failed_) ready_.push_back(std::move(made));
}

}  // namespace caisson::launcher
