// Connections to URLs: names resolved, TLS, and the proxy of the environment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "http/pool.h"
#include "net/loop.h"
#include "net/resolver.h"
#include "net/stream.h"
#include "net/tls.h"

namespace caisson::http {

struct Url {
  bool https = false;
  std::string host;  // without brackets
  uint16_t port = 0;
  std::string path;  // with a leading slash, or empty
  // What the Host header says: the port only when it is not the scheme's own.
  std::string Authority() const;
};
// http and https, no credentials. kInvalidArgument.
Result<Url> ParseUrl(std::string_view text);

struct ConnectorSettings {
  std::string https_proxy;  // "http://host:port", used for https by CONNECT; empty: none
  std::string no_proxy;     // comma-separated host names and ".domain" suffixes, or "*"
  std::string ca_file;      // more certificate authorities, PEM
};

// True when NO_PROXY's list names `host`.
bool BypassesProxy(std::string_view no_proxy, std::string_view host);

// Belongs to one loop; `resolver` outlives it.
class Connector {
 public:
  Connector(net::Loop& loop, net::Resolver& resolver, ConnectorSettings settings);

  // A stream to `url`'s host, ready for a request. Each address of the host is tried in turn.
  Task<Result<net::StreamPtr>> Connect(Url url, Until until);
  // The connections to `url`'s host, ended ones reused. Outlived by the connector.
  std::shared_ptr<ConnectionPool> PoolOf(const Url& url);

 private:
  Task<Result<net::StreamPtr>> DialHost(std::string host, uint16_t port, Until until);
  Task<Result<net::StreamPtr>> DialThroughProxy(Url proxy, Url url, Until until);

  net::Loop& loop_;
  net::Resolver& resolver_;
  ConnectorSettings settings_;
  std::shared_ptr<net::TlsContext> tls_;  // made at first use
  static constexpr size_t kMaxPools = 64;
  std::map<std::string, std::shared_ptr<ConnectionPool>> pools_;  // by scheme and authority
};

}  // namespace caisson::http
