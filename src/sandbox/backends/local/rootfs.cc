#include "sandbox/backends/local/rootfs.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/syscall.h"
#include "base/unique_fd.h"

namespace caisson::sandbox::local {
namespace {

namespace fs = std::filesystem;
using launcher::MountStep;

constexpr size_t kMaxEntries = 2000;

class Mirror {
 public:
  Mirror(const std::string& rootfs, const std::set<std::string>& own)
      : rootfs_(rootfs), own_(own) {}

  Result<std::vector<MountStep>> Run() {
    CAISSON_TRY(Directory(""));
    return std::move(steps_);
  }

 private:
  bool LeadsToOwn(const std::string& path) const {
    auto next = own_.lower_bound(path + "/");
    return next != own_.end() && next->starts_with(path + "/");
  }

  Result<void> Directory(const std::string& dir) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    fs::path host = dir.empty() ? fs::path(rootfs_) : fs::path(rootfs_) / dir;
    for (fs::directory_iterator at(host, error), end; !error && at != end; at.increment(error)) {
      entries.push_back(*at);
    }
    if (error) {
      return Fail(ErrorCode::kInvalidArgument, "rootfs cannot be read",
                  host.string() + ": " + error.message());
    }
    std::ranges::sort(entries);
    for (const fs::directory_entry& entry : entries) {
      std::string name = entry.path().filename().string();
      CAISSON_TRY(Entry(entry, dir.empty() ? name : dir + "/" + name));
      if (steps_.size() > kMaxEntries) {
        return Fail(ErrorCode::kInvalidArgument,
                    "rootfs has too many entries beside the sandbox's own directories");
      }
    }
    return {};
  }

  Result<void> Entry(const fs::directory_entry& entry, const std::string& path) {
    if (own_.contains(path)) return {};
    std::error_code error;
    fs::file_status status = entry.symlink_status(error);
    MountStep step;
    step.target = path;
    if (LeadsToOwn(path)) {
      if (!fs::is_directory(status)) {
        return Fail(ErrorCode::kInvalidArgument,
                    "rootfs: /" + path + " must be a directory: a path of the sandbox lies in it");
      }
      step.op = MountStep::Op::kDirectory;
      step.mode = static_cast<uint32_t>(status.permissions()) & 01777;
      steps_.push_back(std::move(step));
      return Directory(path);
    }
    if (fs::is_symlink(status)) {
      step.op = MountStep::Op::kSymlink;
      step.source = fs::read_symlink(entry.path(), error).string();
    } else if (fs::is_directory(status) || fs::is_regular_file(status)) {
      step.op = MountStep::Op::kBind;
      step.source = entry.path().string();
      step.read_only = true;
    } else {
      return {};
    }
    steps_.push_back(std::move(step));
    return {};
  }

  const std::string& rootfs_;
  const std::set<std::string>& own_;
  std::vector<MountStep> steps_;
};

}  // namespace

Result<std::vector<MountStep>> MirrorRootfs(const std::string& rootfs,
                                            const std::set<std::string>& own) {
  std::error_code error;
  fs::file_status status = fs::symlink_status(rootfs, error);
  if (!fs::is_directory(status)) {
    return Fail(ErrorCode::kInvalidArgument, "rootfs is not a directory of this host", rootfs);
  }
  return Mirror(rootfs, own).Run();
}

std::string ReadRootfsFile(const std::string& rootfs, const std::string& path) {
  UniqueFd root(open(rootfs.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root) return {};
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  UniqueFd file(static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof how)));
  if (!file) return {};
  return ReadAll(file.get(), 256 * 1024).value_or(std::string());
}

}  // namespace caisson::sandbox::local
