#include "guest/lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "guest/text.h"

namespace caisson::guest {
namespace {

// Takes the first line off `rest`, its end included.
std::string_view TakeLine(std::string_view& rest, bool keep) {
  size_t end = keep ? rest.find('\n') : rest.find_first_of("\r\n");
  if (end == std::string_view::npos) return std::exchange(rest, {});
  std::string_view line = rest.substr(0, end);
  bool pair = rest[end] == '\r' && end + 1 < rest.size() && rest[end + 1] == '\n';
  rest.remove_prefix(end + (pair ? 2 : 1));
  return line;
}

size_t CountOf(std::string_view content, std::string_view needle) {
  size_t count = 0;
  for (size_t at = content.find(needle); at != std::string_view::npos;
       at = content.find(needle, at + needle.size())) {
    count++;
  }
  return count;
}

std::string WithLf(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i];
  }
  return out;
}

std::string WithCrLf(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (char c : WithLf(text)) {
    if (c == '\n') out += '\r';
    out += c;
  }
  return out;
}

}  // namespace

Result<LineWindow> ReadLineWindow(std::string_view content, const LineWindowRequest& request) {
  if (content.find('\0') != std::string_view::npos || !IsValidUtf8(content)) {
    return Fail(ErrorCode::kNotText, "the file is not UTF-8 text");
  }
  LineWindow window;
  int64_t first = std::max<int64_t>(request.offset, 0);
  int64_t limit = std::max<int64_t>(request.limit, 0);
  int64_t taken = 0;
  bool full = false;
  std::string_view rest = content;
  for (int64_t line = 0; !rest.empty(); line++) {
    std::string_view text = TakeLine(rest, request.keep_newlines);
    window.total_lines++;
    if (line < first || full) continue;
    if (taken == limit) {
      full = true;
      window.next_offset = line;
      continue;
    }
    std::string_view shown = CutText(text, request.max_line_bytes);
    size_t used = window.text.size() + (taken > 0 ? 1 : 0);
    if (used + shown.size() > request.max_bytes) {
      full = true;
      if (taken > 0) {
        window.next_offset = line;
        continue;
      }
      // A first line too long for the window is cut, or nothing could ever be read past it.
      shown = CutText(shown, request.max_bytes);
      if (!rest.empty()) window.next_offset = line + 1;
    }
    if (taken > 0) window.text += '\n';
    window.text += shown;
    window.cut |= shown.size() < text.size();
    taken++;
  }
  if (first > 0 && first >= window.total_lines) {
    return Fail(ErrorCode::kOffsetPastEnd, "line offset " + Decimal(first) +
                                               " exceeds the length of the file (" +
                                               Decimal(window.total_lines) + " lines)");
  }
  window.start_line = first + 1;
  window.end_line = first + taken;
  return window;
}

Result<EditResult> ReplaceText(std::string_view content, const EditRequest& request) {
  if (request.old_text.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "`old` is empty");
  }
  std::string old_text = request.old_text;
  std::string new_text = request.new_text;
  size_t count = CountOf(content, old_text);
  if (count == 0 && request.adapt_newlines) {
    using Change = std::string (*)(std::string_view);
    for (Change change : {Change(WithCrLf), Change(WithLf)}) {
      std::string adapted = change(request.old_text);
      if (adapted == request.old_text) continue;
      count = CountOf(content, adapted);
      if (count == 0) continue;
      old_text = std::move(adapted);
      new_text = change(request.new_text);
      break;
    }
  }
  if (count == 0) return Fail(ErrorCode::kStringNotFound, "the text to replace does not occur");
  auto found = static_cast<int64_t>(count);
  if (request.expected_count ? found != *request.expected_count
                             : found > 1 && !request.replace_all) {
    return Fail(ErrorCode::kMultipleOccurrences, "the text to replace occurs " + Decimal(found) +
                                                     " times, expected " +
                                                     Decimal(request.expected_count.value_or(1)));
  }
  EditResult result;
  result.count = found;
  result.content.reserve(content.size() + count * new_text.size() - count * old_text.size());
  size_t from = 0;
  for (size_t at = content.find(old_text); at != std::string_view::npos;
       at = content.find(old_text, from)) {
    result.content.append(content.substr(from, at - from));
    size_t begin = result.content.size();
    result.content.append(new_text);
    result.spans.push_back({at, at + old_text.size(), begin, result.content.size()});
    from = at + old_text.size();
  }
  result.content.append(content.substr(from));
  return result;
}

}  // namespace caisson::guest
