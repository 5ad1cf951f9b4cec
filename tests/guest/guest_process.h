// Starts a real caisson-guest as pid 1 of its own mount and pid namespaces and talks raw HTTP to
// it. Needs root. Everything it makes is gone when it is destroyed.
#pragma once

#include <sys/types.h>

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "guest/protocol.h"

namespace caisson::guest {

// A sanitized guest's memory and speed say nothing.
#ifdef CAISSON_GUEST_SANITIZED
inline constexpr bool kMeasures = false;
#else
inline constexpr bool kMeasures = true;
#endif

enum class Tracking { kCgroup, kSupervisor };

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // the body ended as its framing says

  boost::json::value Json() const { return boost::json::parse(body); }
  std::string Code() const;  // of an error
};

// One blocking stream.
class HttpStream {
 public:
  explicit HttpStream(const std::string& socket_path);

  void Send(std::string_view bytes);
  // Sends head and body; a token is added unless `headers` names an Authorization.
  void SendRequest(std::string_view method, std::string_view target, std::string_view body = {},
                   const std::vector<std::pair<std::string, std::string>>& headers = {});
  HttpResponse ReadResponse();
  // Head first, then the body piece by piece ("" at its end).
  HttpResponse ReadHead();
  std::string ReadBodySome();
  bool body_over() const { return body_over_; }
  // Whether the peer has closed: end of file instead of a byte.
  bool AtEnd();
  void Close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool Fill();
  std::string Line();

  UniqueFd fd_;
  std::string buffer_;
  bool chunked_ = false;
  uint64_t left_ = 0;
  bool body_over_ = false;
  bool broken_ = false;
};

struct ExecRecord {
  RecordType type{};
  uint64_t offset = 0;
  std::string payload;
};

// The records of one reply, as they come.
class ExecStream {
 public:
  ExecStream(const std::string& socket_path, std::string_view method, std::string_view target,
             std::string_view body);
  const HttpResponse& head() const { return head_; }
  std::optional<ExecRecord> Next();
  void Close() { stream_.Close(); }

 private:
  HttpStream stream_;
  HttpResponse head_;
  std::string buffer_;
};

// A whole exec.
struct ExecResult {
  int status = 0;
  std::string error;  // code, if status is not 200
  std::string out;
  std::string err;
  std::vector<ExecRecord> records;
  boost::json::object exit;
  int64_t elapsed_ms = 0;

  std::string Reason() const { return std::string(exit.at("reason").as_string()); }
  std::optional<int64_t> ExitCode() const;
};

class GuestProcess {
 public:
  struct Options {
    bool dead_spawner = false;  // it is given one, which has ended
    Tracking tracking = Tracking::kSupervisor;
    std::string cgroup;  // a directory to pass as CAISSON_GUEST_CGROUP_FD, not made for this guest
    // Runs as root in the guest's mount namespace before it starts.
    std::function<void(const std::string& work_dir)> prepare;
    std::string mem_events;  // path of a file to pass as CAISSON_GUEST_MEMEVENTS_FD
    std::vector<uint8_t> filter;
    std::string config;            // instead of the usual one
    size_t sets = 0;               // read-only sets of the usual one, at set_path(0) and so on
    boost::json::object transfer;  // of the usual one
    bool unprivileged = false;     // the guest itself is uid 1000
  };

  // Null with a reason when this host cannot (no root, no cgroup-v2 mount).
  static std::unique_ptr<GuestProcess> Start(const Options& options, std::string& reason);
  ~GuestProcess();

  const std::string& socket_path() const { return socket_path_; }
  const std::string& work_dir() const { return work_dir_; }
  std::string set_path(size_t i) const { return base_ + "/set" + std::to_string(i); }
  std::string set_store(size_t i) const { return base_ + "/store" + std::to_string(i); }
  pid_t pid() const { return pid_; }  // of the guest, in this namespace
  // A path of the guest's namespace as it is reached from here.
  std::string Outside(const std::string& path) const;
  int64_t RssKiB() const;
  size_t CgroupCount() const;
  // Processes of that name among the guest's children, by pids of this namespace.
  std::vector<pid_t> Children(const std::string& name) const;

  HttpResponse Call(std::string_view method, std::string_view target, std::string_view body = {},
                    const std::vector<std::pair<std::string, std::string>>& headers = {});
  ExecResult Exec(const boost::json::object& request);
  ExecResult Shell(std::string_view command, int64_t timeout_ms = 20'000);
  // "ok", or the reason why it is unclean.
  std::string Health();
  // Waits for the guest's own end and gives its exit status, -1 after 5 s.
  int WaitExit();

 private:
  GuestProcess() = default;

  std::string base_;
  std::string socket_path_;
  std::string work_dir_;
  std::string cgroup_;
  pid_t holder_ = -1;  // waits for the guest in the outer pid namespace
  pid_t pid_ = -1;
  bool reaped_ = false;
};

// Percent-encodes everything but letters and digits.
std::string Encode(std::string_view bytes);
int64_t NowMs();
// Polls `condition` for at most `limit_ms`.
bool WaitFor(const std::function<bool()>& condition, int64_t limit_ms = 5'000);
// Collects the rest of an exec's records.
void Collect(ExecStream& stream, ExecResult& result);

}  // namespace caisson::guest
