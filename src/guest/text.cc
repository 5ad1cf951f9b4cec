#include "guest/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace caisson::guest {
namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> MakeBase64Inverse() {
  std::array<int8_t, 256> table{};
  for (int8_t& entry : table) entry = -1;
  for (size_t i = 0; i < kBase64.size(); i++) {
    table[static_cast<uint8_t>(kBase64[i])] = static_cast<int8_t>(i);
  }
  return table;
}
constexpr std::array<int8_t, 256> kBase64Inverse = MakeBase64Inverse();

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead < 0xF0) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
    if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogate
    return 3;
  }
  if (lead > 0xF4 || !continues(1) || !continues(2) || !continues(3)) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;
  return 4;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    // Long runs of ASCII are the usual case.
    if (static_cast<uint8_t>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ReplaceBadUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + 8);
  while (!bytes.empty()) {
    size_t length = Utf8SequenceLength(bytes);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      length = 1;
    } else {
      out.append(bytes.substr(0, length));
    }
    bytes.remove_prefix(length);
  }
  return out;
}

void AppendUtf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string Base64Encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    for (size_t k = 0; k < 3; k++) {
      group = (group << 8) | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    }
    for (size_t k = 0; k < 4; k++) {
      out += k <= count ? kBase64[(group >> (18 - 6 * k)) & 63] : '=';
    }
  }
  return out;
}

std::optional<std::string> Base64Decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    bool last = i + 4 == text.size();
    size_t padding = 0;
    if (last && text[i + 3] == '=') padding = text[i + 2] == '=' ? 2 : 1;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; k++) {
      int value = k >= 4 - padding ? 0 : kBase64Inverse[static_cast<uint8_t>(text[i + k])];
      if (value < 0) return std::nullopt;
      group = (group << 6) | static_cast<uint32_t>(value);
    }
    if ((padding == 1 && (group & 0xFF) != 0) || (padding == 2 && (group & 0xFFFF) != 0)) {
      return std::nullopt;
    }
    for (size_t k = 0; k < 3 - padding; k++) {
      out += static_cast<char>((group >> (16 - 8 * k)) & 0xFF);
    }
  }
  return out;
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    int high = HexDigit(text[i + 1]);
    int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::optional<uint64_t> ParseDecimal(std::string_view text) {
  if (text.empty() || text.size() > 20) return std::nullopt;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    auto digit = static_cast<uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

void AppendDecimal(std::string& out, int64_t value) {
  char digits[24];
  auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

std::string Decimal(int64_t value) {
  std::string out;
  AppendDecimal(out, value);
  return out;
}

std::string OctalMode(uint32_t mode) {
  std::string out = "0";
  for (int shift = (mode & 07000) != 0 ? 9 : 6; shift >= 0; shift -= 3) {
    out += static_cast<char>('0' + ((mode >> shift) & 7));
  }
  return out;
}

std::optional<uint32_t> ParseOctalMode(std::string_view text) {
  if (text.empty() || text.size() > 5) return std::nullopt;
  uint32_t mode = 0;
  for (char c : text) {
    if (c < '0' || c > '7') return std::nullopt;
    mode = mode * 8 + static_cast<uint32_t>(c - '0');
  }
  return mode <= 07777 ? std::optional(mode) : std::nullopt;
}

std::string HexEncode(const uint8_t* bytes, size_t size) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(size * 2);
  for (size_t i = 0; i < size; i++) {
    out += kDigits[bytes[i] >> 4];
    out += kDigits[bytes[i] & 15];
  }
  return out;
}

bool EqualConstantTime(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); i++) {
    difference |= static_cast<uint8_t>(a[i]) ^ static_cast<uint8_t>(b[i]);
  }
  return difference == 0;
}

std::string_view CutText(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xC0) == 0x80) limit--;
  return text.substr(0, limit);
}

// Sixteen places at a time: where the first and the last byte fit, the rest is compared.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from) {
  using Block = uint8_t __attribute__((vector_size(16)));
  size_t size = needle.size();
  if (from > text.size() || text.size() - from < size) return std::string_view::npos;
  const char* p = text.data() + from;
  const char* end = text.data() + text.size() - (size - 1);  // of the places to start at
  const Block first = Block{} + static_cast<uint8_t>(needle.front());
  const Block last = Block{} + static_cast<uint8_t>(needle.back());
  auto place = [&](const char* at) { return static_cast<size_t>(at - text.data()); };
  // Bytes that may be compared in vain: repeated ones would make this quadratic.
  size_t patience = 4 * (text.size() - from) + 65'536;
  for (; end - p >= 16; p += 16) {
    Block starts;
    Block ends;
    std::memcpy(&starts, p, sizeof starts);
    std::memcpy(&ends, p + size - 1, sizeof ends);
    auto fits = (starts == first) & (ends == last);
    uint64_t halves[2];
    std::memcpy(halves, &fits, sizeof halves);
    if ((halves[0] | halves[1]) == 0) continue;
    for (int i = 0; i < 16; i++) {
      if (fits[i] == 0) continue;
      if (std::memcmp(p + i, needle.data(), size) == 0) return place(p + i);
      if (size <= patience) {
        patience -= size;
        continue;
      }
      size_t left = text.size() - place(p + i);
      const void* found = ::memmem(p + i, left, needle.data(), size);
      return found == nullptr ? std::string_view::npos : place(static_cast<const char*>(found));
    }
  }
  for (; p < end; p++) {
    if (*p == needle.front() && std::memcmp(p, needle.data(), size) == 0) return place(p);
  }
  return std::string_view::npos;
}

int64_t CountLineFeeds(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

void AsciiLowerAll(std::string& text) {
  for (char& c : text) c = static_cast<char>(c | (c >= 'A' && c <= 'Z' ? 0x20 : 0));
}

bool EqualIgnoreCase(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++) {
    if (AsciiLower(a[i]) != AsciiLower(b[i])) return false;
  }
  return true;
}

}  // namespace caisson::guest
