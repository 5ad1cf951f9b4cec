// A window of lines of a text, and replacing text in a text: the pure parts of `lines` and `edit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "guest/diff.h"

namespace caisson::guest {

struct LineWindowRequest {
  int64_t offset = 0;  // 0-based line; negative is 0
  int64_t limit = 2000;
  size_t max_bytes = 512'000;
  size_t max_line_bytes = SIZE_MAX;
  bool keep_newlines = false;  // only LF ends a line, CR is text
};

struct LineWindow {
  std::string text;         // joined by LF, no newline at the end
  int64_t total_lines = 0;  // a last line without newline counts; an empty text has none
  int64_t start_line = 0;   // 1-based; of an empty window: where it would start
  int64_t end_line = 0;     // 1-based, inclusive; start_line - 1 for an empty window
  std::optional<int64_t> next_offset;
  bool cut = false;  // a line was cut, at a character's boundary
};

// kNotText for NUL or bad UTF-8 anywhere, kOffsetPastEnd for an offset at or beyond the end of a
// text that has lines (or beyond 0 in an empty one).
Result<LineWindow> ReadLineWindow(std::string_view content, const LineWindowRequest& request);

struct EditRequest {
  std::string old_text;
  std::string new_text;
  bool replace_all = false;
  std::optional<int64_t> expected_count = std::nullopt;
  bool adapt_newlines = true;
};

struct EditResult {
  std::string content;
  int64_t count = 0;
  std::vector<Span> spans;  // what was replaced
};

// Literal, from the left, not overlapping. kStringNotFound, kMultipleOccurrences (also when the
// count is not the expected one), kInvalidArgument for an empty old text.
Result<EditResult> ReplaceText(std::string_view content, const EditRequest& request);

}  // namespace caisson::guest
