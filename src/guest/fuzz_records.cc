// The record reader: it ends, gives every payload byte once, and the same in whatever pieces the
// stream comes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "guest/records.h"

using caisson::guest::AppendRecord;
using caisson::guest::RecordReader;

namespace {

// What the reader makes of it, written again; " bad" behind it where it refuses the rest.
std::string ReadIn(std::string_view text, size_t piece) {
  using Kind = RecordReader::Step::Kind;
  RecordReader reader;
  std::string payload;
  std::string out;
  while (!text.empty()) {
    std::string_view part = text.substr(0, piece);
    text.remove_prefix(part.size());
    for (;;) {
      auto step = reader.Next(part);
      if (!step) return out + " bad";
      if (step->kind == Kind::kNone) break;
      if (step->kind == Kind::kBegin) payload.clear();
      if (step->kind == Kind::kBytes) payload += step->part;
      if (step->kind == Kind::kEnd) {
        AppendRecord(out, step->header.type, step->header.offset, payload);
      }
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  std::string whole = ReadIn(text, SIZE_MAX);
  if (ReadIn(text, 1 + data[0] % 40) != whole) std::abort();
  std::string_view records = whole;
  if (records.ends_with(" bad") && !text.starts_with(records)) records.remove_suffix(4);
  if (!text.starts_with(records)) std::abort();
  return 0;
}
