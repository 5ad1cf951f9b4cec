#include "base/fd_passing.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace caisson {
namespace {

// The C libraries differ about the types of these fields.
msghdr MakeMessage(std::span<const iovec> parts, char* control, size_t control_size) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(parts.size());
  if (control_size > 0) message.msg_control = control;
  message.msg_controllen = static_cast<decltype(message.msg_controllen)>(control_size);
  return message;
}

}  // namespace

ssize_t SendWithFds(int socket, std::span<const iovec> parts, std::span<const int> fds, int flags) {
  if (fds.size() > kMaxPassedFds) {
    errno = EINVAL;
    return -1;
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)] = {};
  size_t bytes = fds.size_bytes();
  msghdr message = MakeMessage(parts, control, fds.empty() ? 0 : CMSG_SPACE(bytes));
  if (!fds.empty()) {
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = static_cast<decltype(header->cmsg_len)>(CMSG_LEN(bytes));
    std::memcpy(CMSG_DATA(header), fds.data(), bytes);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

ReceivedMessage ReceiveWithFds(int socket, std::span<const iovec> parts, std::span<UniqueFd> fds,
                               int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedFds)];
  msghdr message = MakeMessage(parts, control, sizeof control);
  ReceivedMessage received;
  do {
    received.size = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received.size < 0 && errno == EINTR);
  if (received.size < 0) return received;
  received.whole = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  // The kernel delivers all descriptors of a message in one header.
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
    return received;
  }
  int numbers[kMaxPassedFds];
  size_t bytes = std::min<size_t>(header->cmsg_len - CMSG_LEN(0), sizeof numbers);
  std::memcpy(numbers, CMSG_DATA(header), bytes);
  for (size_t i = 0; i < bytes / sizeof(int); i++) {
    UniqueFd fd(numbers[i]);
    if (i < fds.size()) {
      fds[i] = std::move(fd);
      received.fd_count++;
    } else {
      received.whole = false;
    }
  }
  return received;
}

}  // namespace caisson
