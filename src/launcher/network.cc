#include "launcher/network.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

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

}  // namespace caisson::launcher
