// caisson-guest: the first process of every sandbox. See docs/guest-protocol.md.
#include <signal.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/syscall.h"
#include "guest/config.h"
#include "guest/guest.h"
#include "guest/protocol.h"
#include "guest/spawner.h"

namespace {

using caisson::WriteAll;

int RunServe() {
  // A peer that goes away while it is told a failure must not end the process by a signal.
  ::signal(SIGPIPE, SIG_IGN);
  caisson::guest::Config config;
  auto served = caisson::guest::ReadConfig(config);
  if (served) served = caisson::guest::Serve(config);
  if (served) return 0;
  std::string line = served.error().ToString() + "\n";
  if (config.sync) {
    (void)WriteAll(config.sync.get(), std::string(1, caisson::guest::kSyncFailed) + line);
  }
  (void)WriteAll(2, "caisson-guest: " + line);
  return 1;
}

int RunSpawn() {
  caisson::guest::Config config;
  auto ended = caisson::guest::ReadSpawnerConfig(config);
  if (ended) ended = caisson::guest::RunSpawner(config);
  (void)WriteAll(2, "caisson-guest: " + ended.error().ToString() + "\n");
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string_view command = argc == 2 ? argv[1] : "";
  if (command == "serve") ::_exit(RunServe());
  if (command == "spawn") ::_exit(RunSpawn());
  if (command == "--version") {
    return WriteAll(1, "caisson-guest " CAISSON_VERSION "\n").has_value() ? 0 : 1;
  }
  (void)WriteAll(2, "usage: caisson-guest serve | spawn | --version\n");
  return 2;
}
