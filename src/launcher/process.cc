#include "launcher/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <string_view>

namespace caisson::launcher {

uint64_t NowUs() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000 +
         static_cast<uint64_t>(time.tv_nsec) / 1000;
}
int64_t NowMs() { return static_cast<int64_t>(NowUs() / 1000); }

uint64_t StartTimeOf(int pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  ssize_t got = file ? read(file.get(), text, sizeof text) : -1;
  if (got <= 0) return 0;
  std::string_view stat(text, static_cast<size_t>(got));
  // The second field is the program's name in parentheses and may hold anything; the last ')' ends
  // it.
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22; field++) {
    at = at == stat.npos ? at : stat.find(' ', at + 1);
  }
  if (at == stat.npos) return 0;
  uint64_t value = 0;
  std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), value);
  return value;
}

UniqueFd OpenProcess(int pid, uint64_t start_time) {
  if (pid <= 0) return {};
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  // Looked at after the pidfd exists: if this is the process, the pidfd is of no other.
  if (pidfd && StartTimeOf(pid) != start_time) pidfd.reset();
  return pidfd;
}

void Kill(int pidfd) { syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0); }

int Reap(int pidfd) {
  constexpr auto kPidFd = static_cast<idtype_t>(3);  // P_PIDFD
  siginfo_t info{};
  if (waitid(kPidFd, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) < 0) return 0;
  if (info.si_pid == 0) return 0;
  return info.si_code == CLD_EXITED ? 256 + info.si_status : info.si_status;
}

}  // namespace caisson::launcher
