// libFuzzer target: a glob pattern and a path, split at the first NUL. A walk down the path never
// crashes and its state stays small; a literal pattern matches itself and nothing else.
#include <cstdint>
#include <string_view>

#include "guest/glob.h"

namespace {

using caisson::guest::Glob;

bool IsLiteral(std::string_view pattern) {
  if (pattern.find_first_of("*?[{") != std::string_view::npos) return false;
  // A path as a walk makes it: no empty or dot components.
  return !pattern.starts_with('/') && !pattern.ends_with('/') &&
         pattern.find("//") == std::string_view::npos && pattern != "." &&
         !pattern.starts_with("./") && pattern.find("/./") == std::string_view::npos &&
         !pattern.ends_with("/.");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t end = input.find('\0');
  if (end == std::string_view::npos) return 0;
  std::string_view pattern = input.substr(0, end);
  std::string_view path = input.substr(end + 1);
  for (bool hidden : {false, true}) {
    for (bool any_depth : {false, true}) {
      auto glob = Glob::Compile(pattern, {any_depth, hidden, false});
      if (!glob) continue;
      bool matches = glob->Matches(path);
      if (!IsLiteral(pattern)) continue;
      if (!glob->Matches(pattern)) __builtin_trap();
      bool bare = pattern.find('/') == std::string_view::npos;
      if (matches && path != pattern && !(bare && any_depth)) __builtin_trap();
      // At any depth it is still the last component.
      if (matches && !path.ends_with(pattern)) __builtin_trap();
    }
  }
  return 0;
}
