// The server's side of the guest protocol (docs/guest-protocol.md): one sandbox's guest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/task.h"
#include "base/until.h"
#include "guest/protocol.h"
#include "http/client.h"
#include "http/pool.h"
#include "net/stream.h"

namespace caisson::sandbox {

// What GET /v1/hello says.
struct GuestHello {
  uint32_t protocol = 0;
  std::string build;
  std::string arch;
  std::string work_dir;
  std::vector<std::string> features;
  bool pid1 = false;
  bool uid_separation = false;
};

enum class OutputLimitAction : uint8_t { kDiscard, kKill };
enum class DisconnectAction : uint8_t { kKill, kContinue };

struct PtySize {
  uint16_t rows = 24;
  uint16_t cols = 80;
};

struct ExecRequest {
  std::string id;                      // empty: the guest makes one
  std::optional<std::string> command;  // shell text; else argv
  std::vector<std::string> argv;
  std::string cwd;  // empty: work_dir
  std::map<std::string, std::string> env;
  std::string umask;   // octal; empty: the guest's default
  bool login = false;  // shell text in a login shell
  bool stdin_pipe = false;
  std::optional<PtySize> pty;  // a terminal in place of the three pipes
  std::optional<Millis> timeout;
  std::optional<uint64_t> head_bytes;
  uint64_t tail_bytes = 0;
  uint64_t keep_bytes = 0;  // of the output, in files, to be read by offset later
  OutputLimitAction on_output_limit = OutputLimitAction::kDiscard;
  DisconnectAction on_disconnect = DisconnectAction::kContinue;
};

// How an exec ended; see the protocol's section 5.
struct ExecExit {
  std::optional<int> code;  // the program's own, never made up
  std::string signal;       // "KILL"; empty when none
  guest::ExitReason reason = guest::ExitReason::kLost;
  Millis duration{};
  Millis cpu{};
  uint64_t max_rss_bytes = 0;
  uint64_t stdout_bytes = 0;
  uint64_t stderr_bytes = 0;
  bool stdout_truncated = false;
  bool stderr_truncated = false;
  struct Kept {
    uint64_t stdout_bytes = 0;
    uint64_t stderr_bytes = 0;
  };
  std::optional<Kept> kept;  // where keep_bytes was asked for
  uint32_t still_running = 0;
};

// An answer of records, as they come. Outlived by its GuestClient.
class RecordStream {
 public:
  struct Record {
    guest::RecordType type{};
    uint64_t offset = 0;
    std::string payload;
  };

  // `last`: the type of the record that ends it.
  RecordStream(http::PooledConnection connection, guest::RecordType last)
      : connection_(std::move(connection)), last_(last) {}
  // The next record; nothing after the last one. A stream that breaks before it is kConnectionLost.
  Task<Result<std::optional<Record>>> Next(Until until);

 private:
  http::PooledConnection connection_;
  guest::RecordType last_;
  std::string buffer_;
  bool ended_ = false;
};

// A running (or ended) exec's record stream. Outlived by its GuestClient.
class ExecStream {
 public:
  using Record = RecordStream::Record;

  explicit ExecStream(RecordStream records) : records_(std::move(records)) {}
  // The exec's id and pid, once the started record was read.
  const std::string& id() const { return id_; }
  // The next record, which may be a keep-alive; nothing after the exit record. A stream that breaks
  // before it is kConnectionLost: the outcome is not known, and never made up.
  Task<Result<std::optional<Record>>> Next(Until until);
  // Of an exit record's payload.
  static Result<ExecExit> ParseExit(std::string_view payload);

 private:
  RecordStream records_;
  std::string id_;
};

// Belongs to one loop. Keeps idle connections for reuse. The sandbox may be gone at any time:
// then calls fail with kConnectionLost or kUnavailable.
class GuestClient {
 public:
  // `fence` goes with every mutating call; `clock` outlives this.
  GuestClient(std::unique_ptr<net::Dialer> dialer, std::string token, uint64_t fence,
              const Clock& clock);
  ~GuestClient();

  // No command of this client runs longer: one without a timeout gets this one, a longer one is
  // refused (kInvalidArgument).
  void LimitCommands(Millis longest) { longest_command_ = longest; }
  std::optional<Millis> longest_command() const { return longest_command_; }

  // A connection to the guest stands: a sign of life that costs no call. kUnavailable,
  // kConnectionLost when nobody listens any more.
  Task<Result<void>> Connect(Until until);
  // kProtocol when the versions do not fit.
  Task<Result<GuestHello>> Hello(Until until);

  // `until` bounds the start only; the stream has waits of its own.
  Task<Result<ExecStream>> StartExec(ExecRequest request, Until until);
  // Starts one that nobody follows yet; its state, JSON.
  Task<Result<std::string>> StartInBackground(ExecRequest request, Until until);
  // Follows one from a byte offset; kExecNotFound, kInvalidArgument beyond its end.
  Task<Result<ExecStream>> AttachExec(std::string exec_id, uint64_t after, Until until);
  // Returns when all of `data` is in the pipe. kExecEnded when nobody reads any more.
  Task<Result<void>> WriteStdin(std::string exec_id, std::string data, bool eof, Until until);
  Task<Result<void>> Signal(std::string exec_id, std::string signal, bool tree, Until until);
  // Whether any command runs.
  Task<Result<bool>> Busy(Until until);

  // Changes below a directory, by `target` of /v1/files/watch with its query. kNotSupported by a
  // guest that cannot.
  Task<Result<RecordStream>> Watch(std::string target, Until until);

  // Any call of the protocol: `target` with its query; `body` JSON or bytes. An error answer
  // becomes an Error with the guest's code and message. The connection is at the answer's body.
  struct Answer {
    http::ResponseHead head;
    http::PooledConnection connection;
  };
  Task<Result<Answer>> Call(std::string method, std::string target, std::string content_type,
                            std::string body, Until until, http::Headers extra = {});
  // The same for an answer that is JSON: its text, at most kMaxJsonBytes.
  Task<Result<std::string>> CallJson(std::string method, std::string target, std::string body,
                                     Until until);

  // A call whose body comes in pieces; the answer's JSON text.
  Task<Result<std::string>> Upload(std::string method, std::string target, http::BodySource& body,
                                   Until until);

 private:
  Task<Result<RecordStream>> OpenStream(std::string method, std::string target, std::string body,
                                        guest::RecordType last, Until until);
  Task<Result<ExecStream>> OpenExec(std::string method, std::string target, std::string body,
                                    Until until);
  static Task<Result<void>> CheckStatus(const http::ResponseHead& answer,
                                        http::PooledConnection& connection, Until until);
  http::RequestHead Head(std::string method, std::string target, std::string content_type,
                         Until until) const;

  Result<void> BoundCommand(ExecRequest& request) const;

  std::shared_ptr<http::ConnectionPool> connections_;
  std::string token_;
  uint64_t fence_;
  const Clock& clock_;
  std::optional<Millis> longest_command_;
};

}  // namespace caisson::sandbox
