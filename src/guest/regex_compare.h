// Our regular expressions against RE2, for the differential test and the fuzzer.
#pragma once

#include <re2/re2.h>

#include <optional>
#include <string>
#include <string_view>

#include "guest/line_matcher.h"
#include "guest/text.h"

namespace caisson::guest {

inline bool IsAscii(std::string_view text) {
  for (char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

// Overlong forms, surrogates and values over U+10FFFF of three and four bytes: RE2's `.` takes them
// as code points, ours does not.
inline bool HasFalseCodePoints(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0xE0 || Utf8SequenceLength(text.substr(i)) != 0) continue;
    bool shaped = i + 2 < text.size() && (static_cast<uint8_t>(text[i + 1]) & 0xC0) == 0x80 &&
                  (static_cast<uint8_t>(text[i + 2]) & 0xC0) == 0x80;
    if (shaped) return true;
  }
  return false;
}

// A pattern, compiled by both.
class RegexPair {
 public:
  RegexPair(const std::string& pattern, bool ignore_case)
      : pattern_(pattern),
        folds_(ignore_case || pattern.find("(?") != std::string::npos),
        re2_(pattern, Options(ignore_case)) {
    auto ours = Regex::Compile(pattern, ignore_case);
    if (ours) {
      matcher_.emplace(*std::move(ours));
    } else {
      error_ = ours.error().message;
    }
  }

  bool ours_compiles() const { return matcher_.has_value(); }
  bool re2_compiles() const { return re2_.ok(); }
  const std::string& error() const { return error_; }
  const std::string& re2_error() const { return re2_.error(); }
  // RE2 has smaller limits for nested repetitions, and counts its program otherwise.
  bool re2_refuses_size() const {
    return re2_.error_code() == re2::RE2::ErrorRepeatSize ||
           re2_.error_code() == re2::RE2::ErrorPatternTooLarge;
  }

  bool Matches(std::string_view line) { return matcher_->Matches(line); }
  // Whether both say the same of one line; nothing where they may differ.
  std::optional<bool> Agree(std::string_view line) {
    if (!matcher_ || !re2_.ok() || HasFalseCodePoints(line)) return std::nullopt;
    // Ours folds ASCII letters only.
    if (folds_ && !(IsAscii(line) && IsAscii(pattern_))) return std::nullopt;
    bool ours = matcher_->Matches(line);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return ours == re2::RE2::PartialMatch({line.data(), line.size()}, re2_);
  }

 private:
  static re2::RE2::Options Options(bool ignore_case) {
    re2::RE2::Options options;
    options.set_log_errors(false);
    options.set_case_sensitive(!ignore_case);
    options.set_max_mem(64 << 20);
    return options;
  }

  const std::string pattern_;
  const bool folds_;
  re2::RE2 re2_;
  std::optional<LineMatcher> matcher_;
  std::string error_;
};

}  // namespace caisson::guest
