#include "base/ids.h"

#include <fmt/format.h>

#include <array>

namespace caisson {
namespace {

// Crockford's alphabet in lower case: no i, l, o, u.
constexpr std::string_view kAlphabet = "0123456789abcdefghjkmnpqrstvwxyz";
constexpr size_t kDigits = 26;

}  // namespace

std::string MakeIdText(std::string_view kind, WallTime now, Random& random) {
  std::array<uint8_t, 16> uuid{};
  random.Fill(uuid);
  auto ms =
      static_cast<uint64_t>(std::chrono::duration_cast<Millis>(now.time_since_epoch()).count());
  for (size_t i = 0; i < 6; i++) uuid[i] = static_cast<uint8_t>(ms >> (8 * (5 - i)));
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x70);  // version 7
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);  // variant

  std::string text(kind);
  // 128 bits in 26 digits of five bits: two zero bits lead, so that the order of bytes is kept.
  unsigned pending = 0;
  unsigned bits = 2;
  for (uint8_t byte : uuid) {
    pending = (pending << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += kAlphabet[(pending >> bits) & 31];
    }
  }
  return text;
}

Result<void> CheckIdText(std::string_view kind, std::string_view text) {
  bool good = text.size() == kind.size() + kDigits && text.starts_with(kind) &&
              text.substr(kind.size()).find_first_not_of(kAlphabet) == std::string_view::npos;
  if (good) return {};
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("an id of kind \"{}\" is that followed by {} characters of lower-case base32",
                  kind, kDigits));
}

}  // namespace caisson
