#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "json/json.h"
#include "sandbox/backends/local/host.h"
#include "sandbox/backends/local/local_backend.h"

namespace caisson::cli {
namespace {

int RunDoctor(const Host& host, bool as_json) {
  auto facts = sandbox::local::ProbeHost(host.own_directory + "/caisson-launcher");
  sandbox::Declaration declaration = sandbox::local::Declare(facts);
  if (as_json) {
    json::array listed;
    for (const auto& fact : declaration.facts) {
      listed.push_back(
          json::object{{"name", fact.name}, {"holds", fact.holds}, {"detail", fact.detail}});
    }
    json::object local{{"backend", declaration.backend},
                       {"isolation", NameOf(declaration.isolation)},
                       {"usable", declaration.usable},
                       {"facts", std::move(listed)}};
    fmt::print("{}\n", json::Serialize(json::object{{"backends", json::array{std::move(local)}}}));
  } else {
    fmt::print("local sandboxes: {}, isolation {}\n", declaration.usable ? "usable" : "not usable",
               NameOf(declaration.isolation));
    for (const auto& fact : declaration.facts) {
      fmt::print("  {}  {:<16} {}\n", fact.holds ? "yes" : "no ", fact.name, fact.detail);
    }
  }
  return declaration.usable ? kExitOk : kExitFailed;
}

}  // namespace

void AddDoctor(CLI::App& app, Host& host, int& exit_code) {
  auto* command =
      app.add_subcommand("doctor", "Say what this host can enforce, and what it cannot");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([as_json, &host, &exit_code] { exit_code = RunDoctor(host, *as_json); });
}

}  // namespace caisson::cli
