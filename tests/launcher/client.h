// A small blocking client of the launcher's protocol, for tests: starts the program, sends one
// request at a time or many, waits for replies by id.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/protocol.h"

namespace caisson::launcher::testing {

struct Answer {
  Reply reply;
  std::string text;
  UniqueFd fd;
  bool ok() const { return reply.status == Status::kOk; }
  // For failure messages of tests.
  std::string ToString() const;
};

class Client {
 public:
  // Starts `$CAISSON_BIN_DIR/caisson-launcher --state-dir <dir> <mode>`.
  Client(const std::string& state_dir, const std::string& mode);
  ~Client();  // closes the socket and waits for the launcher's end
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends a request; returns its id.
  uint32_t Send(Request request, const std::string& text = {}, const std::vector<int>& fds = {});
  // Waits for the reply to `id`, at most `timeout_ms`; keeps others for their turn.
  Answer Wait(uint32_t id, int timeout_ms = 30'000);
  Answer Call(Request request, const std::string& text = {}, const std::vector<int>& fds = {}) {
    return Wait(Send(request, text, fds));
  }

  int pid() const { return pid_; }
  void CloseSocket() { socket_.reset(); }
  // Exit status as of waitpid.
  int WaitForExit();
  void KillHard();

 private:
  UniqueFd socket_;
  int pid_ = -1;
  uint32_t next_id_ = 1;
  std::map<uint32_t, Answer> early_;
};

}  // namespace caisson::launcher::testing
