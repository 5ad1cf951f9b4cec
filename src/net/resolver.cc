#include "net/resolver.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include "net/loop.h"

namespace caisson::net {
namespace {

constexpr size_t kThreads = 2;
constexpr size_t kMaxQueue = 256;

bool IsNumeric(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// RFC 6761, 6.3: always loopback, and never asked for. Roots without /etc/hosts would not know it.
bool IsLocalhost(std::string_view host) {
  constexpr std::string_view kName = "localhost";
  if (host.ends_with('.')) host.remove_suffix(1);
  if (host.size() < kName.size()) return false;
  std::string_view last = host.substr(host.size() - kName.size());
  bool same = std::ranges::equal(
      last, kName, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
  return same && (host.size() == last.size() || host[host.size() - last.size() - 1] == '.');
}

Result<std::vector<std::string>> Lookup(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found; code == 0 && entry != nullptr; entry = entry->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text.data());
    }
  }
  if (!addresses.empty()) return addresses;
  return Fail(ErrorCode::kUnavailable, "the name \"" + host + "\" cannot be resolved",
              code == 0 ? "" : ::gai_strerror(code));
}

}  // namespace

Resolver::Resolver() {
  for (size_t i = 0; i < kThreads; i++) threads_.emplace_back([this] { Main(); });
}

Resolver::~Resolver() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Resolver::Main() {
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    job();
  }
}

Task<Result<std::vector<std::string>>> Resolver::Resolve(std::string host, Until until) {
  if (IsNumeric(host)) co_return std::vector<std::string>{std::move(host)};
  if (IsLocalhost(host)) co_return std::vector<std::string>{"127.0.0.1", "::1"};
  // Shared with the thread: whoever asked may have gone when the answer comes.
  struct Pending {
    explicit Pending(Loop& loop) : arrived(loop) {}
    Notification arrived;
    std::optional<Result<std::vector<std::string>>> answer;
  };
  Loop* loop = Loop::Current();
  auto pending = std::make_shared<Pending>(*loop);
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= kMaxQueue) {
      co_return Fail(ErrorCode::kOverloaded, "too many name lookups are under way");
    }
    queue_.emplace_back([pending, loop, host] {
      auto answer = Lookup(host);
      loop->Post([pending, moved = std::move(answer)]() mutable {
        pending->answer = std::move(moved);
        pending->arrived.Set();
      });
    });
  }
  wake_.notify_one();
  CAISSON_CO_TRY(co_await pending->arrived.Wait(std::move(until)));
  co_return std::move(*pending->answer);
}

}  // namespace caisson::net
