// TLS over any stream, as a client.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "net/stream.h"

namespace caisson::net {

// Whom to trust. Made once, shared by connections; thread-safe after it was made.
class TlsContext {
 public:
  // The system's certificate authorities, and those in `ca_file` (PEM) if it is not empty.
  static Result<std::shared_ptr<TlsContext>> Make(const std::string& ca_file);
  ~TlsContext();

 private:
  friend class TlsStream;
  friend Task<Result<StreamPtr>> StartTls(std::shared_ptr<TlsContext>, StreamPtr, std::string,
                                          Until);
  struct Impl;
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// TLS 1.2 or later; the certificate must be valid for `host`. kUnavailable says why it was not.
Task<Result<StreamPtr>> StartTls(std::shared_ptr<TlsContext> context, StreamPtr stream,
                                 std::string host, Until until);

}  // namespace caisson::net
