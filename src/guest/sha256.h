// SHA-256 (FIPS 180-4), incremental. Portable code; about 400 MB/s.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::guest {

class Sha256 {
 public:
  void Update(std::string_view bytes);
  // Lower-case hex of what was given so far; the object is used up.
  std::string HexDigest();
  static std::string Hex(std::string_view bytes);

 private:
  void Block(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};
  uint64_t size_ = 0;
};

}  // namespace caisson::guest
