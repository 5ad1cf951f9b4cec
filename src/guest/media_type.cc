#include "guest/media_type.h"

#include <algorithm>
#include <string>

#include "guest/text.h"

namespace caisson::guest {
namespace {

using namespace std::string_view_literals;

// What a name or a signature stands for.
struct Kind {
  std::string_view key;
  std::string_view name;
};

// By extension, of text and of other content.
constexpr Kind kTexts[] = {
    {"c", "text/x-c"},
    {"cc", "text/x-c++"},
    {"cpp", "text/x-c++"},
    {"css", "text/css"},
    {"csv", "text/csv"},
    {"go", "text/x-go"},
    {"h", "text/x-c"},
    {"htm", "text/html"},
    {"html", "text/html"},
    {"ics", "text/calendar"},
    {"ipynb", "application/x-ipynb+json"},
    {"java", "text/x-java"},
    {"js", "text/javascript"},
    {"json", "application/json"},
    {"jsonl", "application/jsonl"},
    {"log", "text/plain"},
    {"md", "text/markdown"},
    {"mjs", "text/javascript"},
    {"py", "text/x-python"},
    {"rs", "text/x-rust"},
    {"rtf", "application/rtf"},
    {"sh", "application/x-sh"},
    {"sql", "application/sql"},
    {"svg", "image/svg+xml"},
    {"toml", "application/toml"},
    {"ts", "text/x-typescript"},
    {"tsv", "text/tab-separated-values"},
    {"xml", "application/xml"},
    {"yaml", "application/yaml"},
    {"yml", "application/yaml"},
};
constexpr Kind kOthers[] = {
    {"docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
    {"mp3", "audio/mpeg"},
    {"parquet", "application/vnd.apache.parquet"},
    {"pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
    {"tar", "application/x-tar"},
    {"wasm", "application/wasm"},
    {"woff2", "font/woff2"},
    {"xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
};
// By the first bytes.
constexpr Kind kSignatures[] = {
    {"\x89PNG\r\n\x1a\n", "image/png"},
    {"\xff\xd8\xff", "image/jpeg"},
    {"GIF87a", "image/gif"},
    {"GIF89a", "image/gif"},
    {"%PDF-", "application/pdf"},
    {"\x1f\x8b", "application/gzip"},
    {"BZh", "application/x-bzip2"},
    {"\xfd"
     "7zXZ\0"sv,
     "application/x-xz"},
    {"\x28\xb5\x2f\xfd", "application/zstd"},
    {"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"},
    {"\x7f"
     "ELF",
     "application/x-elf"},
    {"SQLite format 3\0"sv, "application/vnd.sqlite3"},
    {"OggS", "audio/ogg"},
    {"fLaC", "audio/flac"},
    {"ID3", "audio/mpeg"},
    {"\x1a\x45\xdf\xa3", "video/webm"},
    {"II*\0"sv, "image/tiff"},
    {"MM\0*"sv, "image/tiff"},
    {"BM", "image/bmp"},
};
// A container of four bytes of size or signature, and what is in it.
struct Inner {
  std::string_view outer;
  size_t offset;
  std::string_view inner;
  std::string_view name;
};
constexpr Inner kContainers[] = {
    {"RIFF", 8, "WEBP", "image/webp"},      {"RIFF", 8, "WAVE", "audio/wav"},
    {"RIFF", 8, "AVI ", "video/x-msvideo"}, {"", 4, "ftypavif", "image/avif"},
    {"", 4, "ftypheic", "image/heic"},      {"", 4, "ftypqt", "video/quicktime"},
    {"", 4, "ftyp", "video/mp4"},           {"", 257, "ustar", "application/x-tar"},
};

std::string Extension(std::string_view name) {
  size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return {};
  std::string extension(name.substr(dot + 1));
  AsciiLowerAll(extension);
  return extension;
}

template <size_t kCount>
std::string_view ByExtension(const Kind (&kinds)[kCount], std::string_view extension) {
  for (const Kind& kind : kinds) {
    if (kind.key == extension) return kind.name;
  }
  return {};
}

std::string_view BySignature(std::string_view head) {
  for (const Kind& kind : kSignatures) {
    if (head.starts_with(kind.key)) return kind.name;
  }
  for (const Inner& one : kContainers) {
    bool is_outer = head.starts_with(one.outer) && head.size() > one.offset;
    if (is_outer && head.substr(one.offset).starts_with(one.inner)) return one.name;
  }
  return {};
}

bool IsText(std::string_view head, bool whole) {
  if (head.find('\0') != std::string_view::npos) return false;
  // A character that the end of the head cuts is no bad one.
  size_t most = whole ? 0 : std::min<size_t>(head.size(), 3);
  for (size_t cut = 0; cut <= most; cut++) {
    if (IsValidUtf8(head.substr(0, head.size() - cut))) return true;
  }
  return false;
}

}  // namespace

MediaType GuessMediaType(std::string_view name, std::string_view head, bool whole) {
  std::string extension = Extension(name);
  if (head.empty() || IsText(head, whole)) {
    // A PDF without a byte over 127 is none the less a PDF.
    if (head.starts_with("%PDF-")) return {"application/pdf", true};
    std::string_view type = ByExtension(kTexts, extension);
    return {type.empty() ? "text/plain" : type, true};
  }
  std::string_view type = ByExtension(kOthers, extension);  // some are kinds of zip
  std::string_view signed_type = BySignature(head);
  if (!signed_type.empty()) return {signed_type, false};
  if (!type.empty()) return {type, false};
  return {head.starts_with("PK\x03\x04") ? "application/zip" : "application/octet-stream", false};
}

}  // namespace caisson::guest
