// libFuzzer target: a pattern and a text, split at the first NUL. What we compile RE2 compiles,
// too, and both say the same of each line.
#include <cstdint>
#include <string>
#include <string_view>

#include "guest/regex_compare.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t end = input.find('\0');
  if (end == std::string_view::npos || end == 0 || end > 200) return 0;
  bool ignore_case = input[0] == '~';
  std::string pattern(input.substr(ignore_case ? 1 : 0, end - (ignore_case ? 1 : 0)));
  caisson::guest::RegexPair pair(pattern, ignore_case);
  if (!pair.ours_compiles()) return 0;
  if (!pair.re2_compiles()) {
    if (!pair.re2_refuses_size()) __builtin_trap();
    return 0;
  }
  std::string_view text = input.substr(end + 1);
  while (!text.empty()) {
    size_t line = text.find('\n');
    if (!pair.Agree(text.substr(0, line)).value_or(true)) __builtin_trap();
    text = line == std::string_view::npos ? std::string_view() : text.substr(line + 1);
  }
  return 0;
}
