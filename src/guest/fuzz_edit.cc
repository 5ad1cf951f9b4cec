// Replacing text and the diff of it, with any texts.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "guest/lines.h"

using caisson::guest::Diff;
using caisson::guest::EditRequest;
using caisson::guest::ReplaceText;
using caisson::guest::Span;
using caisson::guest::UnifiedDiff;

namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

std::string_view Take(std::string_view& rest, size_t size) {
  std::string_view taken = rest.substr(0, size);
  rest.remove_prefix(taken.size());
  return taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  std::string_view rest(reinterpret_cast<const char*>(data + 3), size - 3);
  EditRequest request;
  request.old_text = Take(rest, data[0] % 16);
  request.new_text = Take(rest, data[1] % 32);
  request.replace_all = (data[2] & 1) != 0;
  request.adapt_newlines = (data[2] & 2) != 0;
  auto edited = ReplaceText(rest, request);
  if (!edited) return 0;
  Check(edited->count == static_cast<int64_t>(edited->spans.size()));
  // Outside of the spans both texts are the same.
  std::string rebuilt;
  size_t at = 0;
  for (const Span& span : edited->spans) {
    Check(span.old_begin >= at && span.old_end > span.old_begin);
    rebuilt += rest.substr(at, span.old_begin - at);
    Check(rebuilt.size() == span.new_begin);
    rebuilt += edited->content.substr(span.new_begin, span.new_end - span.new_begin);
    at = span.old_end;
  }
  rebuilt += rest.substr(at);
  Check(rebuilt == edited->content);
  Diff whole = UnifiedDiff(rest, edited->content, edited->spans, SIZE_MAX);
  Check(!whole.cut && whole.text.starts_with("@@ -"));
  Diff part = UnifiedDiff(rest, edited->content, edited->spans, 100);
  Check(part.text.size() <= 100 && whole.text.starts_with(part.text));
  return 0;
}
