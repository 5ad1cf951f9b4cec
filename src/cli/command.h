// What the commands of `caisson` share.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"

namespace CLI {
class App;
}

namespace caisson::cli {

// Exit codes of the program itself; `exec` gives the command's own besides.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;     // the task did not succeed
inline constexpr int kExitUsage = 2;      // wrong arguments
inline constexpr int kExitTimeout = 124;  // as timeout(1)
inline constexpr int kExitRefused = 125;  // Caisson itself could not do it, as env(1) and docker
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// Made in main, given to every command.
struct Host {
  const Clock& clock;
  Random& random;
  std::string own_directory;  // where this program and caisson-launcher lie
};

// "caisson: code: message" on standard error, with the cause behind it.
void PrintError(const Error& error);

// Each registers its sub-command; `exit_code` is set when it ran.
void AddExec(CLI::App& app, Host& host, int& exit_code);
void AddDoctor(CLI::App& app, Host& host, int& exit_code);

}  // namespace caisson::cli
