#include "cli/runtime_dir.h"

#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "base/digest.h"

namespace caisson::cli {
namespace {

bool IsWritableMemory(const char* path) {
  struct statfs info{};
  if (::statfs(path, &info) != 0) return false;
  bool memory = info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
  return memory && ::access(path, W_OK | X_OK) == 0;
}

}  // namespace

std::string RuntimeBase() {
  if (::geteuid() != 0) return "";
  for (const char* path : {"/run", "/dev/shm"}) {
    if (IsWritableMemory(path)) return path;
  }
  return "";
}

Result<std::string> RuntimeDirOf(const std::string& data_dir) {
  std::string base = RuntimeBase();
  if (base.empty()) return data_dir + "/local";
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(data_dir.c_str(), nullptr),
                                                   &std::free);
  if (!real) return Fail(ErrnoError(errno, "find " + data_dir));
  return base + "/caisson-" + Sha256Hex(real.get()).substr(0, 16);
}

}  // namespace caisson::cli
