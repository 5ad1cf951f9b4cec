#include "server_process.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/syscall.h"

namespace caisson::bench {

Result<std::unique_ptr<TemporaryDirectory>> TemporaryDirectory::Make(const Bench& bench) {
  std::string pattern = bench.data_root + "/caisson-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    return Fail(ErrnoError(errno, "make a directory in " + bench.data_root));
  }
  return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(std::move(pattern)));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const Bench& bench,
                                                            std::string data_dir) {
  std::unique_ptr<TemporaryDirectory> own;
  if (data_dir.empty()) {
    CAISSON_ASSIGN(own, TemporaryDirectory::Make(bench));
    data_dir = own->path();
  }
  CAISSON_ASSIGN(Pipe out, MakePipe());
  SpawnSpec spec;
  spec.program = bench.program_dir + "/caisson";
  spec.arguments = {"serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--ephemeral"};
  spec.environment = {"PATH=/usr/bin:/bin"};
  spec.descriptors = {{1, out.write.get()}, {2, 2}};
  CAISSON_ASSIGN(ChildProcess child, Spawn(spec));
  std::unique_ptr<ServerProcess> server(new ServerProcess(bench.clock, std::move(child)));
  server->own_dir_ = std::move(own);
  server->data_dir_ = std::move(data_dir);
  server->out_ = std::move(out.read);
  out.write.reset();
  CAISSON_TRY(server->ReadPort());
  return server;
}

ServerProcess::~ServerProcess() {
  // It ends its sandboxes; killed only if it does not.
  (void)child_.Signal(SIGTERM);
  (void)child_.Wait(clock_, Deadline::After(clock_, Millis(30'000)));
}

// From "… serves http://127.0.0.1:PORT (…".
Result<void> ServerProcess::ReadPort() {
  constexpr std::string_view kBefore = "http://127.0.0.1:";
  std::string line;
  while (line.find('\n') == line.npos) {
    pollfd waiting{out_.get(), POLLIN, 0};
    char buffer[512];
    ssize_t got = ::poll(&waiting, 1, 30'000) == 1 ? ::read(out_.get(), buffer, sizeof buffer) : 0;
    if (got <= 0) return Fail(ErrorCode::kUnavailable, "caisson serve did not start");
    line.append(buffer, static_cast<size_t>(got));
  }
  size_t at = line.find(kBefore);
  if (at != line.npos) {
    const char* digits = line.data() + at + kBefore.size();
    std::from_chars(digits, line.data() + line.size(), port_);
  }
  if (port_ == 0) return Fail(ErrorCode::kProtocol, "caisson serve printed no address");
  return {};
}

}  // namespace caisson::bench
