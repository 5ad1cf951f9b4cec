// Bytes and text: UTF-8, base64, percent-encoding, decimal numbers. Pure functions, no allocation
// beyond their results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace caisson::guest {

// Length in bytes of the well-formed UTF-8 sequence at the start of `text` (1..4); 0 if the bytes
// there are not one (overlong forms, surrogates and values over U+10FFFF are not).
size_t Utf8SequenceLength(std::string_view text);
bool IsValidUtf8(std::string_view text);
// The text with U+FFFD in place of each bad sequence.
std::string ReplaceBadUtf8(std::string_view bytes);
void AppendUtf8(std::string& out, uint32_t code_point);
// At most `limit` bytes of the text, cut at a character's boundary.
std::string_view CutText(std::string_view text, size_t limit);

// Where `needle` (not empty) is in the text, from `from` on; npos if nowhere. Made for long texts.
size_t FindBytes(std::string_view text, std::string_view needle, size_t from);

// How many line feeds there are.
int64_t CountLineFeeds(std::string_view text);

std::string Base64Encode(std::string_view bytes);
// Strict: padded, no white space, no stray bits; nothing otherwise.
std::optional<std::string> Base64Decode(std::string_view text);

// %XX to bytes; nothing for a bad escape. '+' is itself.
std::optional<std::string> PercentDecode(std::string_view text);

// Digits only, no sign, no white space; nothing on overflow or anything else.
std::optional<uint64_t> ParseDecimal(std::string_view text);
void AppendDecimal(std::string& out, int64_t value);
std::string Decimal(int64_t value);
// "0644"
std::string OctalMode(uint32_t mode);
// 1 to 5 octal digits up to 07777; nothing otherwise.
std::optional<uint32_t> ParseOctalMode(std::string_view text);

std::string HexEncode(const uint8_t* bytes, size_t size);
// As fast for a wrong value as for a right one of the same length.
bool EqualConstantTime(std::string_view a, std::string_view b);
// ASCII only.
bool EqualIgnoreCase(std::string_view a, std::string_view b);
char AsciiLower(char c);
void AsciiLowerAll(std::string& text);

}  // namespace caisson::guest
