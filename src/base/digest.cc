#include "base/digest.h"

#include <openssl/evp.h>

#include <array>

namespace caisson {

std::string Sha256Hex(std::string_view data) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, 32> digest{};
  EVP_Digest(data.data(), data.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  std::string text;
  text.reserve(2 * digest.size());
  for (unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace caisson
