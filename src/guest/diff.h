// What an edit would change, as a unified diff. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::guest {

// One replaced piece: where it stood in the old text and where its replacement stands in the new.
struct Span {
  size_t old_begin = 0;
  size_t old_end = 0;
  size_t new_begin = 0;
  size_t new_end = 0;
};

struct Diff {
  std::string text;  // hunks with three lines of context, without the two lines of file names
  bool cut = false;  // it ends before a hunk that would have gone over `max_bytes`
};

// `spans` in order, not overlapping; outside of them the texts are the same. Lines end at LF; a
// last line without one is followed by the usual remark.
Diff UnifiedDiff(std::string_view old_text, std::string_view new_text,
                 const std::vector<Span>& spans, size_t max_bytes);

}  // namespace caisson::guest
