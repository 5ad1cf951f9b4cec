#include "guest/diff.h"

#include <algorithm>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kContext = 3;

size_t LineBegin(std::string_view text, size_t at) {
  size_t newline = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  return newline == std::string_view::npos ? 0 : newline + 1;
}
// The begin of the line behind the one that `at` lies in.
size_t NextLine(std::string_view text, size_t at) {
  size_t newline = text.find('\n', at);
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

size_t CountLines(std::string_view text) {
  auto count = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  return count + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

bool AtLineBegin(std::string_view text, size_t at) { return at == 0 || text[at - 1] == '\n'; }

// Whole lines that one or several spans touch.
std::vector<Span> ToLines(std::string_view old_text, std::string_view new_text,
                          const std::vector<Span>& spans) {
  std::vector<Span> blocks;
  for (size_t i = 0; i < spans.size(); i++) {
    Span block = spans[i];
    size_t head = block.old_begin - LineBegin(old_text, block.old_begin);
    block.old_begin -= head;
    block.new_begin -= head;
    // To the end of a line in both texts, which are the same up to the next span; spans that share
    // a line share the block.
    for (;; i++) {
      block.old_end = spans[i].old_end;
      block.new_end = spans[i].new_end;
      if (AtLineBegin(old_text, block.old_end) && AtLineBegin(new_text, block.new_end)) break;
      size_t newline = old_text.find('\n', block.old_end);
      bool last = i + 1 == spans.size();
      if (last || newline < spans[i + 1].old_begin) {
        size_t line_end = newline == std::string_view::npos ? old_text.size() : newline + 1;
        block.new_end += line_end - block.old_end;
        block.old_end = line_end;
        break;
      }
    }
    blocks.push_back(block);
  }
  return blocks;
}

void AppendLines(std::string& out, char mark, std::string_view text) {
  while (!text.empty()) {
    size_t newline = text.find('\n');
    size_t size = newline == std::string_view::npos ? text.size() : newline + 1;
    out += mark;
    out += text.substr(0, size);
    if (newline == std::string_view::npos) out += "\n\\ No newline at end of file\n";
    text.remove_prefix(size);
  }
}

size_t Back(std::string_view text, size_t at, size_t lines) {
  for (; lines > 0 && at > 0; lines--) at = LineBegin(text, at - 1);
  return at;
}
size_t Forward(std::string_view text, size_t at, size_t lines) {
  for (; lines > 0 && at < text.size(); lines--) at = NextLine(text, at);
  return at;
}

// "12,3"; an empty range names the line before it.
std::string Range(size_t lines_before, size_t count) {
  std::string text = Decimal(static_cast<int64_t>(lines_before + (count > 0 ? 1 : 0)));
  if (count != 1) text += "," + Decimal(static_cast<int64_t>(count));
  return text;
}

}  // namespace

Diff UnifiedDiff(std::string_view old_text, std::string_view new_text,
                 const std::vector<Span>& spans, size_t max_bytes) {
  Diff diff;
  std::vector<Span> blocks = ToLines(old_text, new_text, spans);
  size_t old_lines = 0;  // before old_seen, and so for the new text
  size_t new_lines = 0;
  size_t old_seen = 0;
  size_t new_seen = 0;
  for (size_t first = 0; first < blocks.size();) {
    size_t begin = Back(old_text, blocks[first].old_begin, kContext);
    // Blocks whose contexts meet are one hunk.
    size_t last = first;
    size_t end = Forward(old_text, blocks[last].old_end, kContext);
    while (last + 1 < blocks.size() &&
           Back(old_text, blocks[last + 1].old_begin, kContext) <= end) {
      last++;
      end = Forward(old_text, blocks[last].old_end, kContext);
    }
    std::string body;
    size_t at = begin;
    for (size_t i = first; i <= last; i++) {
      AppendLines(body, ' ', old_text.substr(at, blocks[i].old_begin - at));
      AppendLines(body, '-',
                  old_text.substr(blocks[i].old_begin, blocks[i].old_end - blocks[i].old_begin));
      AppendLines(body, '+',
                  new_text.substr(blocks[i].new_begin, blocks[i].new_end - blocks[i].new_begin));
      at = blocks[i].old_end;
    }
    AppendLines(body, ' ', old_text.substr(at, end - at));
    size_t new_begin = blocks[first].new_begin - (blocks[first].old_begin - begin);
    size_t new_end = blocks[last].new_end + (end - blocks[last].old_end);
    old_lines += CountLines(old_text.substr(old_seen, begin - old_seen));
    new_lines += CountLines(new_text.substr(new_seen, new_begin - new_seen));
    size_t old_count = CountLines(old_text.substr(begin, end - begin));
    size_t new_count = CountLines(new_text.substr(new_begin, new_end - new_begin));
    std::string hunk =
        "@@ -" + Range(old_lines, old_count) + " +" + Range(new_lines, new_count) + " @@\n" + body;
    if (diff.text.size() + hunk.size() > max_bytes) {
      diff.cut = true;
      return diff;
    }
    diff.text += hunk;
    old_lines += old_count;
    new_lines += new_count;
    old_seen = end;
    new_seen = new_end;
    first = last + 1;
  }
  return diff;
}

}  // namespace caisson::guest
