// Streams, listening and dialling over plain sockets.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "net/loop.h"

namespace caisson::net {
namespace {

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

class SocketStream final : public Stream {
 public:
  explicit SocketStream(Descriptor socket) : socket_(std::move(socket)) {}

  Task<Result<size_t>> Read(std::span<char> buffer, Until until) override {
    for (;;) {
      ssize_t got = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
      if (got >= 0) co_return static_cast<size_t>(got);
      int error = errno;
      if (error == EINTR) continue;
      if (!WouldBlock(error)) co_return Fail(Lost(error, "receive"));
      CAISSON_CO_TRY(co_await socket_.WaitReadable(until));
    }
  }

  Task<Result<void>> Write(std::string_view data, Until until) override {
    while (!data.empty()) {
      ssize_t sent = ::send(socket_.fd(), data.data(), data.size(), MSG_NOSIGNAL);
      if (sent >= 0) {
        data.remove_prefix(static_cast<size_t>(sent));
        continue;
      }
      int error = errno;
      if (error == EINTR) continue;
      if (!WouldBlock(error)) co_return Fail(Lost(error, "send"));
      CAISSON_CO_TRY(co_await socket_.WaitWritable(until));
    }
    co_return Result<void>();
  }

  Task<Result<void>> CloseWrite(Until) override {
    if (::shutdown(socket_.fd(), SHUT_WR) != 0) co_return Fail(Lost(errno, "shutdown"));
    co_return Result<void>();
  }

  bool Quiet() const override {
    char byte = 0;
    ssize_t got = ::recv(socket_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got < 0 && WouldBlock(errno);
  }

 private:
  static Error Lost(int error_number, std::string_view tried) {
    Error error = ErrnoError(error_number, tried);
    error.code = ErrorCode::kConnectionLost;
    return error;
  }
  Descriptor socket_;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> UnixAddress(const std::string& path) {
  Address address;
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.empty() || path.size() >= sizeof unix_address->sun_path) {
    return Fail(ErrorCode::kInvalidPath,
                fmt::format("the socket path \"{}\" is longer than {} bytes; use a data directory "
                            "with a shorter path",
                            path, sizeof unix_address->sun_path - 1));
  }
  unix_address->sun_family = AF_UNIX;
  std::memcpy(unix_address->sun_path, path.data(), path.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

Result<Address> TcpAddress(const std::string& text, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.length = sizeof *v4;
    return address;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.length = sizeof *v6;
    return address;
  }
  return Fail(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a numeric address", text));
}

Result<UniqueFd> MakeSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(ErrnoError(errno, "make a socket"));
  return fd;
}

void DisableNagle(int fd) {
  int on = 1;
  // Fails on unix sockets, where there is nothing to disable.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Task<Result<StreamPtr>> Dial(Loop& loop, Address address, std::string name, Until until) {
  CAISSON_CO_ASSIGN(UniqueFd fd, MakeSocket(address.storage.ss_family));
  if (address.storage.ss_family != AF_UNIX) DisableNagle(fd.get());
  CAISSON_CO_ASSIGN(Descriptor socket, Descriptor::Make(loop, std::move(fd)));
  for (;;) {
    if (::connect(socket.fd(), address.get(), address.length) == 0) break;
    int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN) {  // a unix listener's queue is full: there is nothing to wait on
      CAISSON_CO_TRY(co_await loop.Sleep(until.Within(loop.clock(), Millis(1))));
      if (until.deadline.Passed(loop.clock())) {
        co_return Fail(ErrorCode::kDeadlineExceeded, "connecting to " + name + " took too long");
      }
      continue;
    }
    if (error != EINPROGRESS) co_return Fail(ErrnoError(error, "connect to " + name));
    CAISSON_CO_TRY(co_await socket.WaitWritable(until));
    socklen_t length = sizeof error;
    (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) co_return Fail(ErrnoError(error, "connect to " + name));
    break;
  }
  co_return std::make_unique<SocketStream>(std::move(socket));
}

}  // namespace

Result<StreamPtr> MakeStream(Loop& loop, UniqueFd socket) {
  CAISSON_ASSIGN(Descriptor descriptor, Descriptor::Make(loop, std::move(socket)));
  return std::make_unique<SocketStream>(std::move(descriptor));
}

Task<Result<StreamPtr>> Listener::Accept(Until until) {
  Loop& loop = socket_.loop();
  for (;;) {
    UniqueFd fd(::accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      DisableNagle(fd.get());
      co_return MakeStream(loop, std::move(fd));
    }
    int error = errno;
    if (WouldBlock(error)) {
      CAISSON_CO_TRY(co_await socket_.WaitReadable(until));
    } else if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // The listener stays readable: without a pause this would spin until descriptors are free.
      CAISSON_CO_TRY(co_await loop.Sleep(until.Within(loop.clock(), Millis(50))));
    } else if (error == EBADF || error == EINVAL) {
      co_return Fail(ErrnoError(error, "accept"));
    }
    // Everything else belongs to one connection that is gone already.
  }
}

Result<uint16_t> Listener::Port() const {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) !=
      0) {
    return Fail(ErrnoError(errno, "getsockname"));
  }
  if (address.storage.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
}

Result<Listener> ListenTcp(Loop& loop, const std::string& text, uint16_t port) {
  CAISSON_ASSIGN(Address address, TcpAddress(text, port));
  CAISSON_ASSIGN(UniqueFd fd, MakeSocket(address.storage.ss_family));
  int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), 1024) != 0) {
    int error = errno;
    if (error == EADDRINUSE) {
      return Fail(
          ErrorCode::kAddressInUse,
          fmt::format("{} port {} is taken by another program; choose another with --listen", text,
                      port));
    }
    return Fail(ErrnoError(error, fmt::format("listen on {} port {}", text, port)));
  }
  CAISSON_ASSIGN(Descriptor socket, Descriptor::Make(loop, std::move(fd)));
  return Listener(std::move(socket));
}

Result<UniqueFd> ListenUnixSocket(const std::string& path) {
  CAISSON_ASSIGN(Address address, UnixAddress(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Fail(ErrnoError(errno, "make a socket"));
  // Before bind: the file gets the socket's own mode, so it is never open to others.
  if (::fchmod(fd.get(), 0600) != 0) return Fail(ErrnoError(errno, "set the mode of a socket"));
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), 64) != 0) {
    return Fail(ErrnoError(errno, "listen on " + path));
  }
  return fd;
}

Task<Result<StreamPtr>> DialUnix(Loop& loop, std::string path, Until until) {
  CAISSON_CO_ASSIGN(Address address, UnixAddress(path));
  co_return co_await Dial(loop, address, std::move(path), std::move(until));
}

Task<Result<StreamPtr>> DialTcp(Loop& loop, std::string text, uint16_t port, Until until) {
  CAISSON_CO_ASSIGN(Address address, TcpAddress(text, port));
  co_return co_await Dial(loop, address, fmt::format("{} port {}", text, port), std::move(until));
}

}  // namespace caisson::net
