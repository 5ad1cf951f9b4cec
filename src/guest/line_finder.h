// Finds the lines of a text that match: literally, or by a regular expression.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "guest/line_matcher.h"

namespace caisson::guest {

// Reads a file piece by piece. A piece is whole lines (of which the file's last may lack its LF),
// or a part of a line that is too long to be held. One CR before a line's end is not searched.
class LineFinder {
 public:
  // kInvalidPattern: empty, too long, with a line break, or as Regex::Compile says.
  static Result<LineFinder> Make(std::string pattern, bool regex, bool ignore_case);

  using Found = LineMatcher::Found;

  // At the start of a file, and behind a long line that has matched.
  void StartLine() {
    if (matcher_) matcher_->Restart();
  }
  // The piece that is looked at from here on; stays in place meanwhile.
  void Load(std::string_view piece);
  // The next line that matches, from piece[at], a line's start: `at` is then in it or at its end.
  // After kPause it is called again as it is.
  Found Find(size_t& at);
  // Whether a line matches by what is in the piece, a part of it from piece[at] on. `ends`: the
  // piece is the line's last.
  Found FindInPart(size_t& at, bool ends);
  // So many bytes at the end of a part are loaded again before the next one.
  size_t Overlap() const { return matcher_ ? 0 : needle_.size(); }

 private:
  LineFinder() = default;
  size_t FindLiteral(size_t from, bool open) const;

  std::string needle_;  // of a literal search
  bool ignore_case_ = false;
  std::optional<LineMatcher> matcher_;
  std::string_view piece_;
  std::string lowered_;
};

}  // namespace caisson::guest
