#include "guest/line_finder.h"

#include <utility>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxLiteralBytes = 64 * 1024;

}  // namespace

Result<LineFinder> LineFinder::Make(std::string pattern, bool regex, bool ignore_case) {
  auto bad = [](const char* message) { return Fail(ErrorCode::kInvalidPattern, message); };
  LineFinder finder;
  if (regex) {
    CAISSON_ASSIGN(Regex compiled, Regex::Compile(pattern, ignore_case));
    finder.matcher_.emplace(std::move(compiled));
    return finder;
  }
  if (pattern.empty()) return bad("the pattern is empty");
  if (pattern.size() > kMaxLiteralBytes) return bad("the pattern exceeds 65536 bytes");
  if (pattern.find('\n') != std::string::npos) {
    return bad("a literal pattern with a line break matches no line");
  }
  finder.needle_ = std::move(pattern);
  finder.ignore_case_ = ignore_case;
  if (ignore_case) AsciiLowerAll(finder.needle_);
  return finder;
}

void LineFinder::Load(std::string_view piece) {
  piece_ = piece;
  if (!ignore_case_) return;
  lowered_ = piece;
  AsciiLowerAll(lowered_);
  piece_ = lowered_;
}

// `open`: what follows the piece is not known yet.
size_t LineFinder::FindLiteral(size_t from, bool open) const {
  for (;; from++) {
    from = FindBytes(piece_, needle_, from);
    if (from == std::string_view::npos || needle_.back() != '\r') return from;
    size_t behind = from + needle_.size();
    // A CR before the line's end is not searched.
    bool at_end = behind == piece_.size();
    if (at_end && open) return std::string_view::npos;
    if (!at_end && piece_[behind] != '\n') return from;
  }
}

LineFinder::Found LineFinder::Find(size_t& at) {
  if (!matcher_) {
    size_t hit = FindLiteral(at, false);
    if (hit == std::string_view::npos) return Found::kNothing;
    at = hit;
    return Found::kMatch;
  }
  Found found = matcher_->Feed(piece_, at);
  if (found != Found::kNothing || piece_.ends_with('\n')) return found;
  return matcher_->FeedEnd() ? Found::kMatch : Found::kNothing;
}

LineFinder::Found LineFinder::FindInPart(size_t& at, bool ends) {
  if (!matcher_) {
    return FindLiteral(0, !ends) == std::string_view::npos ? Found::kNothing : Found::kMatch;
  }
  Found found = matcher_->Feed(piece_, at);
  if (found != Found::kNothing || !ends) return found;
  return matcher_->FeedEnd() ? Found::kMatch : Found::kNothing;
}

}  // namespace caisson::guest
