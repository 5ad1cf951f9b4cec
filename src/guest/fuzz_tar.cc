// The tar reader against any bytes: it ends, stays inside the input, and what the writer makes is
// read back as it was.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "guest/tar.h"

using caisson::Result;
using caisson::guest::TarEntry;
using caisson::guest::TarReader;

namespace {

TarReader::Source From(std::string_view text) {
  return [text](char* buffer, size_t size) mutable -> Result<size_t> {
    size = std::min({size, text.size(), size_t{700}});
    std::copy_n(text.begin(), size, buffer);
    text.remove_prefix(size);
    return size;
  };
}

void Check(bool holds) {
  if (!holds) std::abort();
}

// One entry as it was read, written and read again.
void ReadBack(const TarEntry& entry) {
  if (entry.path.find('\0') != entry.path.npos || entry.link.find('\0') != entry.link.npos) return;
  if (entry.type == TarEntry::Type::kOther || entry.path.empty()) return;
  std::string header = TarHeader(entry);
  TarReader reader(From(header));
  auto again = reader.Next();
  Check(again.has_value() && again->has_value());
  Check((*again)->path == entry.path);
  bool link = entry.type == TarEntry::Type::kSymlink || entry.type == TarEntry::Type::kHardLink;
  if (link) Check((*again)->link == entry.link);
  Check((*again)->size == entry.size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  TarReader reader(From(text));
  char buffer[1000];
  for (size_t total = 0;;) {
    auto entry = reader.Next();
    if (!entry || !entry->has_value()) break;
    Check((*entry)->size >= 0);
    ReadBack(**entry);
    // Every other entry is skipped by the reader itself.
    if ((*entry)->path.size() % 2 == 0) continue;
    for (;;) {
      auto got = reader.Read(buffer, sizeof buffer);
      if (!got || *got == 0) break;
      total += *got;
      Check(total <= size);
    }
  }
  return 0;
}
