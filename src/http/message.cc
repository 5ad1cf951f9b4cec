#include "http/message.h"

#include <algorithm>
#include <array>
#include <utility>

namespace caisson::http {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool SameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

bool Unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

std::string Encode(std::string_view raw, bool keep_slash) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string text;
  for (char c : raw) {
    if (Unreserved(c) || (keep_slash && c == '/')) {
      text += c;
      continue;
    }
    auto byte = static_cast<unsigned char>(c);
    text += '%';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {507, "Insufficient Storage"},
};

}  // namespace

std::optional<std::string_view> Headers::Find(std::string_view name) const {
  for (const Header& field : fields_) {
    if (SameName(field.name, name)) return field.value;
  }
  return std::nullopt;
}

size_t Headers::Count(std::string_view name) const {
  return static_cast<size_t>(std::ranges::count_if(
      fields_, [&](const Header& field) { return SameName(field.name, name); }));
}

std::string_view ReasonPhrase(int status) {
  for (const auto& [code, phrase] : kReasons) {
    if (code == status) return phrase;
  }
  return "Status";
}

std::string EncodePath(std::string_view raw) { return Encode(raw, true); }
std::string EncodeQueryValue(std::string_view raw) { return Encode(raw, false); }

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string raw;
  raw.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '%') {
      raw += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    int high = HexValue(text[i + 1]);
    int low = HexValue(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    raw += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return raw;
}

}  // namespace caisson::http
