#include "guest/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/syscall.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

Result<std::string> ReadAt(int directory, const char* name) {
  CAISSON_ASSIGN(UniqueFd fd, OpenFileAt(directory, name, O_RDONLY));
  return ReadAll(fd.get(), 4 * 1024 * 1024);
}

// Groups that commands may have made below theirs (where they are of the guest's own uid) go first.
void RemoveGroup(int parent, const char* name, int depth) {
  if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT || depth == 0) return;
  int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  DIR* list = ::fdopendir(fd);
  if (list == nullptr) {
    ::close(fd);
    return;
  }
  while (dirent* entry = ::readdir(list)) {
    std::string_view child = entry->d_name;
    if (entry->d_type == DT_DIR && child != "." && child != "..") {
      RemoveGroup(fd, entry->d_name, depth - 1);
    }
  }
  ::closedir(list);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

}  // namespace

// Looks and makes nothing: a directory made to try it would cost more than the rest of the start.
Result<void> CgroupTree::Check(int root) {
  CAISSON_TRY(ReadAt(root, "cgroup.events"));
  if (::faccessat(root, "cgroup.kill", F_OK, 0) != 0) {  // Linux 5.14
    return Fail(ErrnoError(errno, "cgroup.kill"));
  }
  if (::faccessat(root, ".", W_OK, 0) != 0) {
    return Fail(ErrnoError(errno, "write to the directory"));
  }
  return {};
}

Result<std::unique_ptr<CgroupTree>> CgroupTree::Make(int root, const std::string& name) {
  if (::mkdirat(root, name.c_str(), 0755) != 0 && errno != EEXIST) {
    return Fail(ErrnoError(errno, "mkdir cgroup " + name));
  }
  auto directory = OpenFileAt(root, name.c_str(), O_RDONLY | O_DIRECTORY);
  if (!directory) {
    ::unlinkat(root, name.c_str(), AT_REMOVEDIR);
    return std::unexpected(directory.error());
  }
  return std::unique_ptr<CgroupTree>(new CgroupTree(root, name, *std::move(directory)));
}

CgroupTree::~CgroupTree() { RemoveGroup(root_, name_.c_str(), 8); }

int64_t CgroupTree::Living() const {
  auto list = ReadAt(directory_.get(), "cgroup.procs");
  if (!list) return 0;
  int64_t count = 0;
  for (char c : *list) count += c == '\n' ? 1 : 0;
  return count;
}

void CgroupTree::Kill() {
  auto fd = OpenFileAt(directory_.get(), "cgroup.kill", O_WRONLY);
  if (fd) (void)WriteAll(fd->get(), "1");
}

bool CgroupTree::Gone() {
  auto events = ReadAt(directory_.get(), "cgroup.events");
  return events && events->find("populated 0") != std::string::npos;
}

void CgroupTree::SignalLeader(pid_t leader, int signal) {
  if (leader > 0) ::kill(-leader, signal);
}

void CgroupTree::SignalAll(int signal) {
  auto list = ReadAt(directory_.get(), "cgroup.procs");
  if (!list) return;
  std::string_view rest = *list;
  while (!rest.empty()) {
    size_t end = rest.find('\n');
    auto pid = ParseDecimal(rest.substr(0, end));
    if (pid && *pid > 1) ::kill(static_cast<pid_t>(*pid), signal);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
}

Result<std::unique_ptr<SupervisedTree>> SupervisedTree::Make(Loop& loop, UniqueFd& peer,
                                                             Report report) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(ErrnoError(errno, "socketpair"));
  }
  UniqueFd ours(ends[0]);
  peer.reset(ends[1]);
  auto tree =
      std::unique_ptr<SupervisedTree>(new SupervisedTree(loop, std::move(ours), std::move(report)));
  CAISSON_TRY(loop.Watch(tree->socket_.get(), EPOLLIN,
                         [raw = tree.get()](uint32_t) { raw->ReadReports(); }));
  return tree;
}

SupervisedTree::~SupervisedTree() { loop_.Forget(socket_.get()); }

void SupervisedTree::ReadReports() {
  SupervisorReport report;
  ssize_t got = ::recv(socket_.get(), &report, sizeof report, MSG_DONTWAIT);
  // A peer that ends with an order of ours unread leaves ECONNRESET, which comes once and before
  // the reports that it sent: those are still there to be read. Only the end of the stream is a
  // loss.
  if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNRESET)) return;
  bool lost = got != static_cast<ssize_t>(sizeof report);
  bool last = lost || report.kind == SupervisorReport::Kind::kGone ||
              report.kind == SupervisorReport::Kind::kFailed;
  if (last) {
    loop_.Forget(socket_.get());
    gone_ = !lost;
  }
  report_(report, lost);  // may destroy this object
}

void SupervisedTree::Order(SupervisorOrder::Kind kind, int signal) {
  SupervisorOrder order{kind, signal};
  (void)::send(socket_.get(), &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void SupervisedTree::Kill() { Order(SupervisorOrder::Kind::kKill, 0); }
void SupervisedTree::SignalLeader(pid_t, int signal) {
  Order(SupervisorOrder::Kind::kSignalLeader, signal);
}
void SupervisedTree::SignalAll(int signal) { Order(SupervisorOrder::Kind::kSignalTree, signal); }

}  // namespace caisson::guest
