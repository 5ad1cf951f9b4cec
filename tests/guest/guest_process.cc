#include "guest_process.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#ifndef CAISSON_GUEST_PROGRAM
#define CAISSON_GUEST_PROGRAM "caisson-guest"
#endif

namespace caisson::guest {
namespace {

constexpr char kToken[] = "token-of-the-test";
constexpr int kIoTimeoutMs = 60'000;

std::string BinDir() {
  const char* dir = std::getenv("CAISSON_BIN_DIR");
  return dir == nullptr ? "build/debug/bin" : dir;
}

int MemFd(std::string_view content) {
  int fd = ::memfd_create("test", 0);
  if (::write(fd, content.data(), content.size()) < 0) return -1;
  ::lseek(fd, 0, SEEK_SET);
  return fd;
}

// Where cgroup v2 is mounted; empty when it is not.
std::string CgroupMount() {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  while (std::getline(mounts, line)) {
    std::istringstream words(line);
    std::string word;
    std::vector<std::string> fields;
    while (words >> word) fields.push_back(word);
    for (size_t i = 5; i + 1 < fields.size(); i++) {
      if (fields[i] == "-" && fields[i + 1] == "cgroup2") return fields[4];
    }
  }
  return {};
}

void Check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

}  // namespace

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool WaitFor(const std::function<bool()>& condition, int64_t limit_ms) {
  int64_t end = NowMs() + limit_ms;
  while (!condition()) {
    if (NowMs() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string Encode(std::string_view bytes) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : bytes) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      out += c;
    } else {
      out += '%';
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[static_cast<uint8_t>(c) & 15];
    }
  }
  return out;
}

std::string HttpResponse::Code() const {
  boost::system::error_code error;
  auto value = boost::json::parse(body, error);
  if (error || !value.is_object() || !value.as_object().contains("code")) return "";
  return std::string(value.at("code").as_string());
}

HttpStream::HttpStream(const std::string& socket_path) {
  fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  Check(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
        "connect");
}

void HttpStream::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the peer has answered early and closed; the answer tells
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void HttpStream::SendRequest(std::string_view method, std::string_view target,
                             std::string_view body,
                             const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string head = std::string(method) + " " + std::string(target) + " HTTP/1.1\r\n";
  bool authorized = false;
  bool framed = false;
  for (const auto& [name, value] : headers) {
    head += name + ": " + value + "\r\n";
    authorized |= name == "Authorization";
    framed |= name == "Transfer-Encoding" || name == "Content-Length";
  }
  if (!authorized) head += std::string("Authorization: Bearer ") + kToken + "\r\n";
  if (!framed && !body.empty()) head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  head += "\r\n";
  Send(head);
  Send(body);
}

bool HttpStream::Fill() {
  pollfd wait{fd_.get(), POLLIN, 0};
  if (::poll(&wait, 1, kIoTimeoutMs) != 1) throw std::runtime_error("the guest does not answer");
  char bytes[65536];
  ssize_t got = ::recv(fd_.get(), bytes, sizeof bytes, 0);
  if (got <= 0) {
    broken_ = true;
    return false;
  }
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

bool HttpStream::AtEnd() { return buffer_.empty() && !Fill(); }

std::string HttpStream::Line() {
  for (;;) {
    size_t end = buffer_.find("\r\n");
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 2);
      return line;
    }
    if (!Fill()) return {};
  }
}

HttpResponse HttpStream::ReadHead() {
  HttpResponse response;
  std::string line = Line();
  if (line.size() < 12) return response;
  response.status = std::atoi(line.c_str() + 9);
  for (line = Line(); !line.empty(); line = Line()) {
    size_t colon = line.find(':');
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response.headers[name] = line.substr(colon + 2);
  }
  body_over_ = response.status == 100;
  chunked_ = response.headers.contains("transfer-encoding");
  left_ = 0;
  if (!chunked_ && !body_over_) {
    left_ = std::strtoull(response.headers["content-length"].c_str(), nullptr, 10);
    body_over_ = left_ == 0;
  }
  return response;
}

std::string HttpStream::ReadBodySome() {
  if (body_over_) return {};
  if (chunked_ && left_ == 0) {
    std::string size = Line();
    if (broken_) return {};
    left_ = std::strtoull(size.c_str(), nullptr, 16);
    if (left_ == 0) {
      Line();
      body_over_ = true;
      return {};
    }
  }
  if (buffer_.empty() && !Fill()) return {};
  std::string piece = buffer_.substr(0, left_);
  buffer_.erase(0, piece.size());
  left_ -= piece.size();
  if (left_ == 0 && chunked_) Line();
  if (left_ == 0 && !chunked_) body_over_ = true;
  return piece;
}

HttpResponse HttpStream::ReadResponse() {
  HttpResponse response = ReadHead();
  while (!body_over_) {
    std::string piece = ReadBodySome();
    if (piece.empty() && (broken_ || body_over_)) break;
    response.body += piece;
  }
  response.complete = body_over_;
  return response;
}

ExecStream::ExecStream(const std::string& socket_path, std::string_view method,
                       std::string_view target, std::string_view body)
    : stream_(socket_path) {
  stream_.SendRequest(method, target, body);
  head_ = stream_.ReadHead();
  if (head_.status != 200) {
    while (!stream_.body_over()) {
      std::string piece = stream_.ReadBodySome();
      if (piece.empty() && !stream_.body_over()) break;
      head_.body += piece;
    }
  }
}

std::optional<ExecRecord> ExecStream::Next() {
  auto need = [&](size_t size) {
    while (buffer_.size() < size) {
      std::string piece = stream_.ReadBodySome();
      if (piece.empty()) return false;
      buffer_ += piece;
    }
    return true;
  };
  if (!need(RecordHeader::kSize)) return std::nullopt;
  std::array<uint8_t, RecordHeader::kSize> bytes;
  std::memcpy(bytes.data(), buffer_.data(), bytes.size());
  auto header = DecodeRecordHeader(bytes);
  if (!header) throw std::runtime_error("a bad record header");
  if (!need(RecordHeader::kSize + header->length)) return std::nullopt;
  ExecRecord record{header->type, header->offset,
                    buffer_.substr(RecordHeader::kSize, header->length)};
  buffer_.erase(0, RecordHeader::kSize + header->length);
  return record;
}

std::optional<int64_t> ExecResult::ExitCode() const {
  const auto& code = exit.at("code");
  if (code.is_null()) return std::nullopt;
  return code.as_int64();
}

void Collect(ExecStream& stream, ExecResult& result) {
  while (auto record = stream.Next()) {
    if (record->type == RecordType::kStdout) result.out += record->payload;
    if (record->type == RecordType::kStderr) result.err += record->payload;
    if (record->type == RecordType::kExit) {
      result.exit = boost::json::parse(record->payload).as_object();
    }
    result.records.push_back(*std::move(record));
  }
}

std::unique_ptr<GuestProcess> GuestProcess::Start(const Options& options, std::string& reason) {
  if (::geteuid() != 0) {
    reason = "not root";
    return nullptr;
  }
  auto guest = std::unique_ptr<GuestProcess>(new GuestProcess());
  char base[] = "/tmp/caisson-guest-test-XXXXXX";
  Check(::mkdtemp(base) != nullptr, "mkdtemp");
  guest->base_ = base;
  ::chmod(base, 0755);
  guest->socket_path_ = guest->base_ + "/socket";
  guest->work_dir_ = guest->base_ + "/work";
  ::mkdir(guest->work_dir_.c_str(), 0755);

  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, guest->socket_path_.c_str(), guest->socket_path_.size() + 1);
  Check(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "bind");
  Check(::listen(listener.get(), 128) == 0, "listen");

  std::map<std::string, UniqueFd> fds;
  fds[std::string(kEnvListenFd)] = std::move(listener);
  fds[std::string(kEnvTokenFd)].reset(MemFd(kToken));
  boost::json::array sets;
  for (size_t i = 0; i < options.sets; i++) {
    ::mkdir(guest->set_store(i).c_str(), 0755);
    Check(::symlink((guest->set_store(i) + "/current").c_str(), guest->set_path(i).c_str()) == 0,
          "symlink");
    sets.push_back(
        boost::json::object{{"path", guest->set_path(i)}, {"store", guest->set_store(i)}});
  }
  boost::json::object config{{"user",
                              {{"uid", 1000},
                               {"gid", 1000},
                               {"name", "user"},
                               {"home", guest->work_dir_},
                               {"shell", "/bin/sh"}}},
                             {"work_dir", guest->work_dir_},
                             {"env", boost::json::object{}},
                             {"transfer", options.transfer},
                             {"sets", sets}};
  fds[std::string(kEnvConfigFd)].reset(
      MemFd(options.config.empty() ? boost::json::serialize(config) : options.config));
  if (!options.filter.empty()) {
    fds[std::string(kEnvFilterFd)].reset(
        MemFd({reinterpret_cast<const char*>(options.filter.data()), options.filter.size()}));
  }
  if (!options.mem_events.empty()) {
    fds[std::string(kEnvMemEventsFd)].reset(::open(options.mem_events.c_str(), O_RDONLY));
  }
  if (options.tracking == Tracking::kCgroup) {
    std::string mount = CgroupMount();
    static int serial = 0;
    guest->cgroup_ = mount + "/caisson-guest-test-" + std::to_string(::getpid()) + "-" +
                     std::to_string(serial++);
    if (mount.empty() || ::mkdir(guest->cgroup_.c_str(), 0755) != 0) {
      guest->cgroup_.clear();
      reason = "no writable cgroup-v2 mount";
      return nullptr;
    }
    fds[std::string(kEnvCgroupFd)].reset(::open(guest->cgroup_.c_str(), O_RDONLY | O_DIRECTORY));
  }
  if (!options.cgroup.empty()) {
    fds[std::string(kEnvCgroupFd)].reset(::open(options.cgroup.c_str(), O_RDONLY | O_DIRECTORY));
  }
  if (options.dead_spawner) {
    int ends[2];
    Check(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    ::close(ends[1]);
    fds[std::string(kEnvSpawnerFd)].reset(ends[0]);
  }
  int sync[2];
  Check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sync) == 0, "socketpair");
  UniqueFd ours(sync[0]);
  fds[std::string(kEnvSyncFd)].reset(sync[1]);
  std::string program = BinDir() + "/" CAISSON_GUEST_PROGRAM;

  int pid_pipe[2];
  Check(::pipe2(pid_pipe, O_CLOEXEC) == 0, "pipe");
  guest->holder_ = ::fork();
  if (guest->holder_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) ::_exit(120);
    pid_t inner = ::fork();
    if (inner == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
      if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) ::_exit(121);
      if (::mount("tmpfs", guest->work_dir_.c_str(), "tmpfs", 0, "mode=755") != 0) ::_exit(122);
      (void)!::chown(guest->work_dir_.c_str(), 1000, 1000);
      if (options.prepare) options.prepare(guest->work_dir_);
      if (options.unprivileged) {
        (void)::setgroups(0, nullptr);
        if (::setresgid(1000, 1000, 1000) != 0 || ::setresuid(1000, 1000, 1000) != 0) ::_exit(123);
      }
      ::clearenv();
      for (auto& [name, fd] : fds) {
        ::fcntl(fd.get(), F_SETFD, 0);
        ::setenv(name.c_str(), std::to_string(fd.get()).c_str(), 1);
      }
      ::setenv("SECRET_OF_THE_SERVER", "never", 1);
      ::execl(program.c_str(), "caisson-guest", "serve", nullptr);
      ::_exit(124);
    }
    (void)!::write(pid_pipe[1], &inner, sizeof inner);
    int status = 0;
    ::waitpid(inner, &status, 0);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
  }
  ::close(pid_pipe[1]);
  (void)!::read(pid_pipe[0], &guest->pid_, sizeof guest->pid_);
  ::close(pid_pipe[0]);
  fds.clear();
  char answer = 0;
  std::string said;
  if (::read(ours.get(), &answer, 1) == 1 && answer == kSyncReady) return guest;
  char line[512];
  ssize_t got = ::read(ours.get(), line, sizeof line);
  if (got > 0) said.assign(line, static_cast<size_t>(got));
  throw std::runtime_error("the guest did not start: " + said);
}

GuestProcess::~GuestProcess() {
  if (pid_ > 0 && !reaped_) ::kill(pid_, SIGKILL);
  if (holder_ > 0 && !reaped_) ::waitpid(holder_, nullptr, 0);
  std::error_code ignored;
  if (!cgroup_.empty()) {
    WaitFor([&] {
      for (const auto& entry : std::filesystem::directory_iterator(cgroup_, ignored)) {
        if (entry.is_directory(ignored)) ::rmdir(entry.path().c_str());
      }
      return ::rmdir(cgroup_.c_str()) == 0 || errno == ENOENT;
    });
  }
  std::filesystem::remove_all(base_, ignored);
}

std::string GuestProcess::Outside(const std::string& path) const {
  return "/proc/" + std::to_string(pid_) + "/root" + path;
}

int64_t GuestProcess::RssKiB() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  }
  return -1;
}

std::vector<pid_t> GuestProcess::Children(const std::string& name) const {
  std::vector<pid_t> found;
  std::string task = "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_);
  std::ifstream children(task + "/children");
  pid_t pid = 0;
  while (children >> pid) {
    std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
    std::string line;
    if (std::getline(comm, line) && line == name) found.push_back(pid);
  }
  return found;
}

size_t GuestProcess::CgroupCount() const {
  size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(cgroup_, ignored)) {
    if (entry.is_directory(ignored)) count++;
  }
  return count;
}

HttpResponse GuestProcess::Call(std::string_view method, std::string_view target,
                                std::string_view body,
                                const std::vector<std::pair<std::string, std::string>>& headers) {
  HttpStream stream(socket_path_);
  stream.SendRequest(method, target, body, headers);
  return stream.ReadResponse();
}

ExecResult GuestProcess::Exec(const boost::json::object& request) {
  int64_t start = NowMs();
  ExecStream stream(socket_path_, "POST", kPathExecs, boost::json::serialize(request));
  ExecResult result;
  result.status = stream.head().status;
  if (result.status == 200) {
    Collect(stream, result);
  } else {
    result.error = stream.head().Code();
  }
  result.elapsed_ms = NowMs() - start;
  return result;
}

ExecResult GuestProcess::Shell(std::string_view command, int64_t timeout_ms) {
  return Exec({{"command", command}, {"timeout_ms", timeout_ms}});
}

std::string GuestProcess::Health() {
  auto health = Call("GET", kPathHealth).Json();
  if (health.at("status") == "ok") return "ok";
  return std::string(health.at("unclean_reason").as_string());
}

int GuestProcess::WaitExit() {
  int status = -1;
  bool over = WaitFor([&] { return ::waitpid(holder_, &status, WNOHANG) == holder_; });
  reaped_ = over;
  return over && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace caisson::guest
