#include "http/connector.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "http/parser.h"

namespace caisson::http {

std::string Url::Authority() const {
  std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (port == (https ? 443 : 80)) return name;
  return fmt::format("{}:{}", name, port);
}

Result<Url> ParseUrl(std::string_view text) {
  auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not an http or https URL", text));
  };
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("https://")) {
    url.https = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return bad();
  }
  std::string_view authority = rest.substr(0, rest.find('/'));
  url.path = rest.substr(authority.size());
  if (authority.find_first_of("@?# \t\r\n") != std::string_view::npos) return bad();
  std::string_view host = authority;
  std::string_view port;
  if (host.starts_with('[')) {
    size_t close = host.find(']');
    if (close == std::string_view::npos) return bad();
    port = host.substr(close + 1);
    host = host.substr(1, close - 1);
  } else if (size_t colon = host.find(':'); colon != std::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (host.empty()) return bad();
  url.host = host;
  url.port = url.https ? 443 : 80;
  if (!port.empty()) {
    auto parsed = std::from_chars(port.data() + 1, port.data() + port.size(), url.port);
    if (port[0] != ':' || parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() ||
        url.port == 0) {
      return bad();
    }
  }
  return url;
}

bool BypassesProxy(std::string_view no_proxy, std::string_view host) {
  while (!no_proxy.empty()) {
    std::string_view item = no_proxy.substr(0, no_proxy.find(','));
    no_proxy.remove_prefix(std::min(no_proxy.size(), item.size() + 1));
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item == "*") return true;
    if (item.starts_with('.')) item.remove_prefix(1);
    if (item.empty()) continue;
    // The name itself, or a name below it: "b.c" covers "a.b.c" and not "ab.c".
    if (host == item) return true;
    if (host.size() > item.size() && host.ends_with(item) &&
        host[host.size() - item.size() - 1] == '.') {
      return true;
    }
  }
  return false;
}

namespace {

class UrlDialer final : public net::Dialer {
 public:
  UrlDialer(Connector& connector, Url url) : connector_(connector), url_(std::move(url)) {}
  Task<Result<net::StreamPtr>> Dial(Until until) override {
    return connector_.Connect(url_, std::move(until));
  }

 private:
  Connector& connector_;
  Url url_;
};

}  // namespace

std::shared_ptr<ConnectionPool> Connector::PoolOf(const Url& url) {
  std::string key = (url.https ? "https://" : "http://") + url.Authority();
  auto found = pools_.find(key);
  if (found != pools_.end()) return found->second;
  // Whoever uses one of them has it to its end.
  if (pools_.size() >= kMaxPools) pools_.clear();
  return pools_[key] = ConnectionPool::Make(std::make_unique<UrlDialer>(*this, url), loop_.clock());
}

Connector::Connector(net::Loop& loop, net::Resolver& resolver, ConnectorSettings settings)
    : loop_(loop), resolver_(resolver), settings_(std::move(settings)) {}

Task<Result<net::StreamPtr>> Connector::DialHost(std::string host, uint16_t port, Until until) {
  CAISSON_CO_ASSIGN(auto addresses, co_await resolver_.Resolve(host, until));
  Error last;
  for (const std::string& address : addresses) {
    auto stream = co_await net::DialTcp(loop_, address, port, until);
    if (stream) co_return stream;
    last = std::move(stream.error());
    if (last.code == ErrorCode::kCancelled) break;
  }
  co_return Fail(std::move(last));
}

Task<Result<net::StreamPtr>> Connector::DialThroughProxy(Url proxy, Url url, Until until) {
  CAISSON_CO_ASSIGN(net::StreamPtr stream, co_await DialHost(proxy.host, proxy.port, until));
  std::string target = fmt::format("{}:{}", url.host, url.port);
  std::string request = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", target);
  CAISSON_CO_TRY(co_await stream->Write(request, until));
  // Only the header belongs to the proxy; it sends nothing behind it before we do.
  Parser parser = Parser::Response({}, true);
  std::string buffer;
  std::string piece(4096, '\0');
  while (!parser.head_done()) {
    CAISSON_CO_ASSIGN(size_t got, co_await stream->Read(piece, until));
    if (got == 0) co_return Fail(ErrorCode::kUnavailable, "the proxy closed the connection");
    buffer.append(piece, 0, got);
    CAISSON_CO_ASSIGN(size_t taken, parser.Feed(buffer));
    buffer.erase(0, taken);
  }
  int status = parser.response_head().status;
  if (status == 200 && buffer.empty()) co_return stream;
  co_return Fail(ErrorCode::kUnavailable,
                 fmt::format("the proxy {} refused to connect to {} (status {})", proxy.Authority(),
                             target, status));
}

Task<Result<net::StreamPtr>> Connector::Connect(Url url, Until until) {
  bool proxied =
      url.https && !settings_.https_proxy.empty() && !BypassesProxy(settings_.no_proxy, url.host);
  net::StreamPtr stream;
  if (proxied) {
    CAISSON_CO_ASSIGN(Url proxy, ParseUrl(settings_.https_proxy));
    CAISSON_CO_ASSIGN(stream, co_await DialThroughProxy(std::move(proxy), url, until));
  } else {
    CAISSON_CO_ASSIGN(stream, co_await DialHost(url.host, url.port, until));
  }
  if (!url.https) co_return stream;
  if (!tls_) {
    CAISSON_CO_ASSIGN(tls_, net::TlsContext::Make(settings_.ca_file));
  }
  co_return co_await net::StartTls(tls_, std::move(stream), url.host, std::move(until));
}

}  // namespace caisson::http
