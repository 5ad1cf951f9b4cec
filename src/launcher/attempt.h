// What a launch step gives back: nothing, or what was tried and the errno. Made without the heap,
// because most steps run between clone and exec.
#pragma once

#include <cerrno>
#include <cstddef>
#include <expected>

#include "base/error.h"  // CAISSON_TRY

namespace caisson::launcher {

struct Trouble {
  int error_number = 0;
  char text[244] = {};  // "bind /usr"; cut when too long
};

template <typename T>
using Attempt = std::expected<T, Trouble>;

// "what", "what object" or "what object/name". `error_number` defaults to the errno of now.
inline std::unexpected<Trouble> Tried(const char* what, const char* object = "",
                                      const char* name = "", int error_number = errno) {
  Trouble trouble;
  trouble.error_number = error_number;
  size_t used = 0;
  auto append = [&](const char* part) {
    while (*part != '\0' && used + 1 < sizeof trouble.text) trouble.text[used++] = *part++;
  };
  append(what);
  if (*object != '\0') append(" ");
  append(object);
  if (*name != '\0') append("/");
  append(name);
  return std::unexpected(trouble);
}

}  // namespace caisson::launcher
