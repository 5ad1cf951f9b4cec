// What is checked of every request before it is routed.
#pragma once

#include "base/error.h"
#include "base/scope.h"
#include "http/server.h"

namespace caisson::api {

// Without authentication the loopback address is the only protection, and a web page in the user's
// browser can reach it: by a cross-site request, or by a name that resolves to 127.0.0.1 (DNS
// rebinding). So Host must be a loopback name, and Origin, where present, the same.
Result<void> CheckOrigin(const http::ServerRequest& request);

// The scope from X-Caisson-Scope-<Key> headers: trusted, because only loopback is served without
// authentication. None: the root scope.
Result<Scope> ReadScope(const http::ServerRequest& request);

}  // namespace caisson::api
