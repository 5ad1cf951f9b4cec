// caisson: server and command line in one program.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "cli/command.h"

namespace {

std::string OwnDirectory() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  caisson::SystemClock clock;
  caisson::SystemRandom random;
  caisson::cli::Host host{clock, random, OwnDirectory()};

  CLI::App app("Caisson runs AI agents durably, each in an isolated sandbox.", "caisson");
  app.set_version_flag("--version", "caisson " CAISSON_VERSION);
  app.require_subcommand(1);
  int exit_code = caisson::cli::kExitOk;
  caisson::cli::AddExec(app, host, exit_code);
  caisson::cli::AddDoctor(app, host, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    int code = app.exit(error);
    return code == 0 ? caisson::cli::kExitOk : caisson::cli::kExitUsage;
  }
  return exit_code;
}
