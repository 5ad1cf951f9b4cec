#include "sandbox/embedded_guest.h"

// CAISSON_GUEST_PROGRAM is the path of the built program; the build makes this file depend on it.
asm(".section .rodata\n"
    ".balign 16\n"
    ".global caisson_guest_begin\n"
    "caisson_guest_begin:\n"
    ".incbin \"" CAISSON_GUEST_PROGRAM
    "\"\n"
    ".global caisson_guest_end\n"
    "caisson_guest_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" {
extern const char caisson_guest_begin[];
extern const char caisson_guest_end[];
}

namespace caisson::sandbox {

std::string_view EmbeddedGuest() {
  return {caisson_guest_begin, static_cast<size_t>(caisson_guest_end - caisson_guest_begin)};
}

}  // namespace caisson::sandbox
