#include "base/random.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace caisson {

uint64_t Random::Next64() {
  std::array<uint8_t, 8> bytes{};
  Fill(bytes);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value;
}

uint64_t Random::Below(uint64_t bound) {
  // Values over the largest multiple of `bound` are thrown away, so that no remainder is favoured.
  uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    uint64_t value = Next64();
    if (value < limit) return value % bound;
  }
}

std::string Random::Hex(size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string raw(bytes, '\0');
  Fill({reinterpret_cast<uint8_t*>(raw.data()), raw.size()});
  std::string text;
  text.reserve(2 * bytes);
  for (char c : raw) {
    auto value = static_cast<uint8_t>(c);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

void SystemRandom::Fill(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::abort();
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

void SeededRandom::Fill(std::span<uint8_t> bytes) {
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(engine_());
}

}  // namespace caisson
