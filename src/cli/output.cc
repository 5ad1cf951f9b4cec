#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"

namespace caisson::cli {

void PrintError(const Error& error) { fmt::print(stderr, "caisson: {}\n", error.ToString()); }

}  // namespace caisson::cli
