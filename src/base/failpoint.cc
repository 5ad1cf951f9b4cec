#include "base/failpoint.h"

#ifdef CAISSON_FAILPOINTS

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace caisson {
namespace {

struct Action {
  bool kill = false;
  int countdown = 1;
};

std::map<std::string, Action, std::less<>> ParseEnvironment() {
  std::map<std::string, Action, std::less<>> actions;
  const char* text = std::getenv("CAISSON_FAILPOINT");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(item.size() < rest.size() ? item.size() + 1 : item.size());
    size_t equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view what = item.substr(equals + 1);
    Action action;
    action.kill = what.starts_with("kill");
    if (size_t at = what.find('@'); at != std::string_view::npos) {
      action.countdown = std::atoi(std::string(what.substr(at + 1)).c_str());
    }
    actions.emplace(std::string(item.substr(0, equals)), action);
  }
  return actions;
}

}  // namespace

void HitFailpoint(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, Action, std::less<>> actions = ParseEnvironment();
  std::lock_guard lock(mutex);
  auto found = actions.find(std::string_view(name));
  if (found == actions.end() || --found->second.countdown != 0) return;
  std::fprintf(stderr, "failpoint %s reached\n", name);
  if (found->second.kill) std::raise(SIGKILL);
  std::abort();
}

}  // namespace caisson

#endif
