#include "guest/tar.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kBlock = 512;
constexpr int64_t kMaxText = 1024 * 1024;
constexpr int64_t kMaxOctal12 = (int64_t{1} << 33) - 1;  // eleven octal digits

// Offsets and sizes of the fields of a header block.
struct Field {
  size_t at;
  size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kMode{100, 8};
constexpr Field kUid{108, 8};
constexpr Field kGid{116, 8};
constexpr Field kSize{124, 12};
constexpr Field kMtime{136, 12};
constexpr Field kSum{148, 8};
constexpr size_t kTypeAt = 156;
constexpr Field kLink{157, 100};
constexpr Field kMagic{257, 8};
constexpr Field kPrefix{345, 155};

Error Malformed(const char* message) {
  return Error{
      ErrorCode::kInvalidArgument, std::string("the archive is not valid: ") + message, {}, {}};
}

std::string_view TextOf(const char* block, Field field) {
  std::string_view text(block + field.at, field.size);
  return text.substr(0, text.find('\0'));
}

// Octal, or GNU's base 256 for what is larger.
std::optional<int64_t> NumberOf(const char* block, Field field) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(block + field.at);
  uint64_t value = 0;
  if ((bytes[0] & 0x80) != 0) {
    if (bytes[0] != 0x80) return std::nullopt;  // negative or beyond 64 bits
    for (size_t i = 1; i < field.size; i++) {
      if (value > (UINT64_MAX >> 8)) return std::nullopt;
      value = value << 8 | bytes[i];
    }
  } else {
    std::string_view text = TextOf(block, field);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    for (char c : text) {
      if (c < '0' || c > '7' || value > (UINT64_MAX >> 3)) return std::nullopt;
      value = value << 3 | static_cast<uint64_t>(c - '0');
    }
  }
  if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<int64_t>(value);
}

uint64_t SumOf(const char* block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kBlock; i++) {
    bool own = i >= kSum.at && i < kSum.at + kSum.size;
    sum += own ? uint64_t{' '} : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

TarEntry::Type TypeOf(char letter) {
  switch (letter) {
    case '0':
    case '\0':
    case '7':
      return TarEntry::Type::kFile;
    case '1':
      return TarEntry::Type::kHardLink;
    case '2':
      return TarEntry::Type::kSymlink;
    case '5':
      return TarEntry::Type::kDirectory;
    default:
      return TarEntry::Type::kOther;
  }
}

// What pax records say of the next entry.
struct PaxFacts {
  std::optional<std::string> path;
  std::optional<std::string> link;
  std::optional<int64_t> size;
  std::optional<int64_t> modified_s;
};

// "LENGTH KEY=VALUE\n" again and again; LENGTH is of the whole record.
Result<void> ReadPax(std::string_view text, PaxFacts& facts) {
  while (!text.empty()) {
    size_t space = text.find(' ');
    auto length = ParseDecimal(text.substr(0, space == text.npos ? 0 : space));
    if (!length || *length <= space + 1 || *length > text.size() || text[*length - 1] != '\n') {
      return Fail(Malformed("a pax record has a wrong length"));
    }
    std::string_view record = text.substr(space + 1, *length - space - 2);
    text.remove_prefix(*length);
    size_t equal = record.find('=');
    if (equal == record.npos) return Fail(Malformed("a pax record has no value"));
    std::string_view key = record.substr(0, equal);
    std::string_view value = record.substr(equal + 1);
    if (key == "path") facts.path = value;
    if (key == "linkpath") facts.link = value;
    if (key == "size") {
      auto size = ParseDecimal(value);
      if (!size || *size > static_cast<uint64_t>(INT64_MAX)) {
        return Fail(Malformed("a pax size is no number"));
      }
      facts.size = static_cast<int64_t>(*size);
    }
    if (key == "mtime") {
      // Fractions are dropped; what is before 1970 is not kept.
      auto seconds = ParseDecimal(value.substr(0, value.find('.')));
      if (seconds && *seconds < (uint64_t{1} << 40)) {
        facts.modified_s = static_cast<int64_t>(*seconds);
      }
    }
  }
  return {};
}

void PutText(char* block, Field field, std::string_view text) {
  std::memcpy(block + field.at, text.data(), std::min(text.size(), field.size));
}
void PutOctal(char* block, Field field, int64_t value) {
  for (size_t i = field.size - 1; i-- > 0; value >>= 3) {
    block[field.at + i] = static_cast<char>('0' + (value & 7));
  }
}

std::string HeaderBlock(const TarEntry& entry, char type) {
  char block[kBlock] = {};
  PutText(block, kName, entry.path);
  PutOctal(block, kMode, entry.mode & 07777);
  PutOctal(block, kUid, 0);
  PutOctal(block, kGid, 0);
  PutOctal(block, kSize, std::min(entry.size, kMaxOctal12));
  PutOctal(block, kMtime, std::clamp<int64_t>(entry.modified_s, 0, kMaxOctal12));
  block[kTypeAt] = type;
  PutText(block, kLink, entry.link);
  PutText(block, kMagic, std::string_view("ustar\00000", 8));
  PutOctal(block, Field{kSum.at, 7}, static_cast<int64_t>(SumOf(block)));
  block[kSum.at + 7] = ' ';
  return std::string(block, kBlock);
}

std::string PaxRecord(std::string_view key, std::string_view value) {
  size_t rest = key.size() + value.size() + 3;  // space, '=', newline
  size_t length = rest + 1;
  while (Decimal(static_cast<int64_t>(length)).size() + rest != length) length++;
  std::string record = Decimal(static_cast<int64_t>(length)) + " ";
  record += key;
  record += '=';
  record += value;
  return record + "\n";
}

}  // namespace

Result<void> TarReader::Fill(char* buffer, size_t size) {
  while (size > 0) {
    CAISSON_ASSIGN(size_t got, source_(buffer, size));
    if (got == 0) return Fail(Malformed("it ends early"));
    buffer += got;
    size -= got;
  }
  return {};
}

Result<void> TarReader::Skip() {
  char buffer[4096];
  for (left_ += padding_, padding_ = 0; left_ > 0;) {
    auto size = static_cast<size_t>(std::min<int64_t>(left_, sizeof buffer));
    CAISSON_TRY(Fill(buffer, size));
    left_ -= static_cast<int64_t>(size);
  }
  return {};
}

Result<std::string> TarReader::TakeText(int64_t size) {
  if (size > kMaxText) return Fail(Malformed("a name or pax header exceeds 1 MiB"));
  std::string text(static_cast<size_t>(size), '\0');
  CAISSON_TRY(Fill(text.data(), text.size()));
  left_ = 0;
  CAISSON_TRY(Skip());
  return text;
}

Result<size_t> TarReader::Read(char* buffer, size_t size) {
  size = static_cast<size_t>(std::min<int64_t>(left_, static_cast<int64_t>(size)));
  if (size == 0) return size_t{0};
  CAISSON_ASSIGN(size_t got, source_(buffer, size));
  if (got == 0) return Fail(Malformed("it ends early"));
  left_ -= static_cast<int64_t>(got);
  return got;
}

Result<std::optional<TarEntry>> TarReader::Next() {
  PaxFacts facts;
  for (;;) {
    CAISSON_TRY(Skip());
    char block[kBlock];
    CAISSON_TRY(Fill(block, kBlock));
    if (std::all_of(block, block + kBlock, [](char c) { return c == '\0'; })) {
      return std::optional<TarEntry>();
    }
    auto sum = NumberOf(block, kSum);
    if (!sum || static_cast<uint64_t>(*sum) != SumOf(block)) {
      return Fail(Malformed("a header's checksum is wrong"));
    }
    char letter = block[kTypeAt];
    TarEntry entry;
    entry.type = TypeOf(letter);
    auto size = NumberOf(block, kSize);
    if (!size) return Fail(Malformed("a size is no number"));
    entry.size = *size;
    // Links and directories have no data, whatever the field says (old writers put a size there).
    bool has_data = entry.type == TarEntry::Type::kFile || entry.type == TarEntry::Type::kOther;
    bool describes = letter == 'x' || letter == 'g' || letter == 'L' || letter == 'K';
    if (!describes && facts.size) entry.size = *facts.size;
    if (!has_data) entry.size = 0;
    left_ = entry.size;
    padding_ = (static_cast<int64_t>(kBlock) - entry.size % static_cast<int64_t>(kBlock)) %
               static_cast<int64_t>(kBlock);
    if (left_ > INT64_MAX - padding_) return Fail(Malformed("a size is no number"));
    if (describes) {
      CAISSON_ASSIGN(std::string text, TakeText(entry.size));
      std::string name = text.substr(0, text.find('\0'));
      if (letter == 'x') CAISSON_TRY(ReadPax(text, facts));
      if (letter == 'L') facts.path = name;
      if (letter == 'K') facts.link = name;
      continue;
    }
    entry.path = TextOf(block, kName);
    std::string_view magic(block + kMagic.at, 5);
    // GNU's own magic ("ustar  ") puts other things where the prefix is.
    if (magic == "ustar" && block[kMagic.at + 5] == '\0') {
      std::string prefix(TextOf(block, kPrefix));
      if (!prefix.empty()) entry.path = prefix + "/" + entry.path;
    }
    entry.link = TextOf(block, kLink);
    entry.mode = static_cast<uint32_t>(NumberOf(block, kMode).value_or(0644)) & 07777;
    entry.modified_s = NumberOf(block, kMtime).value_or(0);
    if (facts.path) entry.path = *std::move(facts.path);
    if (facts.link) entry.link = *std::move(facts.link);
    if (facts.modified_s) entry.modified_s = *facts.modified_s;
    // A name with a slash at its end was a directory before there were types.
    if (entry.type == TarEntry::Type::kFile && entry.path.ends_with('/')) {
      entry.type = TarEntry::Type::kDirectory;
    }
    return entry;
  }
}

std::string TarHeader(const TarEntry& entry) {
  std::string pax;
  if (entry.path.size() > kName.size) pax += PaxRecord("path", entry.path);
  if (entry.link.size() > kLink.size) pax += PaxRecord("linkpath", entry.link);
  if (entry.size > kMaxOctal12) pax += PaxRecord("size", Decimal(entry.size));
  std::string header;
  if (!pax.empty()) {
    TarEntry about{"pax", TarEntry::Type::kOther, {}, static_cast<int64_t>(pax.size()), 0644, 0};
    header = HeaderBlock(about, 'x') + pax + TarPadding(about.size);
  }
  constexpr char kLetters[] = {'0', '5', '2', '1', '0'};
  return header + HeaderBlock(entry, kLetters[static_cast<size_t>(entry.type)]);
}

std::string TarPadding(int64_t size) {
  return std::string((kBlock - static_cast<size_t>(size) % kBlock) % kBlock, '\0');
}

std::string TarEnd() { return std::string(2 * kBlock, '\0'); }

}  // namespace caisson::guest
