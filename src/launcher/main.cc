// caisson-launcher --state-dir DIR [--keep|--ephemeral], with the control socket as descriptor 3.
// caisson-launcher --probe root|rootless: whether namespaces can be made here. Exit code 0, or 1
// with "ERRNO WHAT" on standard output.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/syscall.h"
#include "launcher/probe.h"
#include "launcher/server.h"

namespace caisson::launcher {
namespace {

int Usage() {
  static_cast<void>(WriteAll(2,
                             "usage: caisson-launcher --state-dir DIR [--keep|--ephemeral]\n"
                             "       caisson-launcher --probe root|rootless\n"));
  return 2;
}

int Probe(std::string_view as) {
  if (as != "root" && as != "rootless") return Usage();
  Attempt<void> probed = ProbeNamespaces(as == "root");
  if (probed) return 0;
  const Trouble& trouble = probed.error();
  static_cast<void>(WriteAll(1, std::to_string(trouble.error_number) + " " + trouble.text + "\n"));
  return 1;
}

// Everything back to its default first: what the server ignores must not be ignored in sandboxes.
void SetSignals() {
  // By the raw call: the library keeps a few numbers for itself and would leave those ignored.
  constexpr unsigned long kDefault[4] = {};  // the kernel's struct sigaction with SIG_DFL
  for (int number = 1; number < 65; number++) {
    syscall(SYS_rt_sigaction, number, kDefault, nullptr, 8);
  }
  for (int number : kIgnoredSignals) signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

int Main(int count, char** arguments) {
  if (count == 3 && std::string_view(arguments[1]) == "--probe") return Probe(arguments[2]);
  ServerOptions options;
  for (int i = 1; i < count; i++) {
    std::string_view argument = arguments[i];
    if (argument == "--state-dir" && i + 1 < count && options.state_dir < 0) {
      options.state_dir = open(arguments[++i], O_PATH | O_DIRECTORY | O_CLOEXEC);
      if (options.state_dir < 0) {
        static_cast<void>(WriteAll(2, "caisson-launcher: cannot open the state directory\n"));
        return 1;
      }
    } else if (argument == "--ephemeral" || argument == "--keep") {
      options.ephemeral = argument == "--ephemeral";
    } else {
      return Usage();
    }
  }
  struct stat info{};
  if (options.state_dir < 0 || fstat(kControlFd, &info) < 0 || !S_ISSOCK(info.st_mode)) {
    return Usage();
  }
  fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  SetSignals();
  // Many sandboxes are in the making or alive at once, some descriptors each.
  struct rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  options.own_pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  // Fills the numbers below kFirstFreeFd, see there.
  do {
    options.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (options.null_fd >= 0 && options.null_fd < kFirstFreeFd);
  if (options.null_fd < 0 || options.own_pidfd < 0) return 1;

  Server server(options);
  Attempt<void> ended = server.Run();
  if (ended) return 0;
  static_cast<void>(WriteAll(2, std::string("caisson-launcher: ") + ended.error().text + "\n"));
  return 1;
}

}  // namespace
}  // namespace caisson::launcher

int main(int count, char** arguments) { _exit(caisson::launcher::Main(count, arguments)); }
