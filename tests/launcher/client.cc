#include "client.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/fd_passing.h"

extern char** environ;

namespace caisson::launcher::testing {

std::string Answer::ToString() const {
  return "status " + std::to_string(static_cast<int>(reply.status)) + " step " +
         std::string(NameOf(reply.step)) + " " + ErrnoName(reply.error_number) + ": " + text;
}

Client::Client(const std::string& state_dir, const std::string& mode) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) abort();
  socket_.reset(pair[0]);
  UniqueFd theirs(pair[1]);
  std::string program = std::string(getenv("CAISSON_BIN_DIR")) + "/caisson-launcher";
  const char* arguments[] = {program.c_str(), "--state-dir", state_dir.c_str(), mode.c_str(),
                             nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // dup2 onto itself also clears close-on-exec.
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kControlFd);
  int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                          const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << program;
}

Client::~Client() {
  CloseSocket();
  WaitForExit();
}

int Client::WaitForExit() {
  if (pid_ < 0) return 0;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

void Client::KillHard() {
  kill(pid_, SIGKILL);
  WaitForExit();
  socket_.reset();
}

uint32_t Client::Send(Request request, const std::string& text, const std::vector<int>& fds) {
  request.id = next_id_++;
  request.text_bytes = static_cast<uint32_t>(text.size());
  iovec parts[2] = {{&request, sizeof request}, {const_cast<char*>(text.data()), text.size()}};
  EXPECT_GE(SendWithFds(socket_.get(), parts, fds), 0);
  return request.id;
}

Answer Client::Wait(uint32_t id, int timeout_ms) {
  for (;;) {
    if (auto found = early_.find(id); found != early_.end()) {
      Answer answer = std::move(found->second);
      early_.erase(found);
      return answer;
    }
    pollfd readable{socket_.get(), POLLIN, 0};
    static char buffer[kMaxMessageBytes];
    iovec part{buffer, sizeof buffer};
    Answer answer;
    answer.reply.status = Status::kFailed;
    if (poll(&readable, 1, timeout_ms) <= 0) {
      answer.text = "no reply in time";
      return answer;
    }
    ReceivedMessage received = ReceiveWithFds(socket_.get(), {&part, 1}, {&answer.fd, 1});
    if (received.size < static_cast<ssize_t>(sizeof answer.reply)) {
      answer.text = "the launcher is gone";
      return answer;
    }
    memcpy(&answer.reply, buffer, sizeof answer.reply);
    answer.text.assign(buffer + sizeof answer.reply, answer.reply.text_bytes);
    early_.emplace(answer.reply.id, std::move(answer));
  }
}

}  // namespace caisson::launcher::testing
