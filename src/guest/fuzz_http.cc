// libFuzzer target: any bytes into the HTTP parser, whole and byte by byte; both must see the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "guest/http.h"

namespace {

std::string Trace(std::string_view bytes, size_t step) {
  using Event = caisson::guest::HttpParser::Event;
  caisson::guest::HttpParser parser;
  std::string trace;
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, step);
    bytes.remove_prefix(piece.size());
    for (bool more = true; more;) {
      switch (parser.Next(piece)) {
        case Event::kNeedMore:
          more = false;
          break;
        case Event::kHeader:
          trace += "H" + parser.request().method + parser.request().path;
          for (const auto& [name, value] : parser.request().headers) trace += name + "=" + value;
          break;
        case Event::kBody:
          trace += parser.body();
          break;
        case Event::kEnd:
          trace += "E";
          parser.Reset();
          if (piece.empty()) more = false;
          break;
        case Event::kError:
          return trace + "X";
      }
    }
  }
  return trace;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string whole = Trace(bytes, size == 0 ? 1 : size);
  std::string single = Trace(bytes, 1);
  // A fault later in one read may be seen before the whole of it is: then the shorter is a prefix.
  bool same = whole == single ||
              (whole.ends_with('X') && single.starts_with(whole.substr(0, whole.size() - 1))) ||
              (single.ends_with('X') && whole.starts_with(single.substr(0, single.size() - 1)));
  if (!same) __builtin_trap();
  return 0;
}
