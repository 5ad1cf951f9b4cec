// Messages that carry descriptors, over unix sockets. Freestanding: guest and launcher use it too.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "base/unique_fd.h"

namespace caisson {

inline constexpr size_t kMaxPassedFds = 16;  // of one message

// sendmsg(2) of `parts` with `fds`, which stay the caller's; never raises SIGPIPE. Returns what it
// returns; EINTR is tried again.
ssize_t SendWithFds(int socket, std::span<const iovec> parts, std::span<const int> fds,
                    int flags = 0);

struct ReceivedMessage {
  ssize_t size = 0;     // recvmsg(2)'s result, errno with it; EINTR is tried again
  size_t fd_count = 0;  // how many of the given places were filled
  bool whole = true;    // false: bytes or descriptors did not fit, and are gone
};
// recvmsg(2) into `parts`; descriptors are close-on-exec from the start.
ReceivedMessage ReceiveWithFds(int socket, std::span<const iovec> parts, std::span<UniqueFd> fds,
                               int flags = 0);

}  // namespace caisson
