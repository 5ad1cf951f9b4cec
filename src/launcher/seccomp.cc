#include "launcher/seccomp.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace caisson::launcher {

Attempt<void> LoadFilter(const std::string& filter) {
  if (filter.empty()) return {};
  size_t count = filter.size() / sizeof(sock_filter);
  if (filter.size() % sizeof(sock_filter) != 0 || count > BPF_MAXINSNS) {
    return Tried("seccomp", "", "", EINVAL);
  }
  // The kernel copies the program and never writes to it.
  sock_fprog program{static_cast<unsigned short>(count),
                     reinterpret_cast<sock_filter*>(const_cast<char*>(filter.data()))};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0) return Tried("seccomp");
  return {};
}

}  // namespace caisson::launcher
