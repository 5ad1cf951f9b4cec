#include "base/clock.h"

#include <fmt/format.h>

#include <charconv>

namespace caisson {

WallTime SystemClock::Now() const {
  return std::chrono::time_point_cast<Micros>(std::chrono::system_clock::now());
}
MonoTime SystemClock::MonoNow() const { return std::chrono::steady_clock::now(); }

std::string FormatTime(WallTime time) {
  auto day = std::chrono::floor<std::chrono::days>(time);
  std::chrono::year_month_day date{day};
  std::chrono::hh_mm_ss clock{time - day};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

namespace {

// Reads exactly `digits` decimal digits at `pos` and moves past them; -1 if they are not there.
int ReadDigits(std::string_view text, size_t& pos, size_t digits) {
  if (pos + digits > text.size()) return -1;
  int value = 0;
  for (size_t i = 0; i < digits; i++) {
    char c = text[pos + i];
    if (c < '0' || c > '9') return -1;
    value = value * 10 + (c - '0');
  }
  pos += digits;
  return value;
}

bool ReadChar(std::string_view text, size_t& pos, char expected) {
  if (pos >= text.size() || text[pos] != expected) return false;
  pos++;
  return true;
}

}  // namespace

Result<WallTime> ParseTime(std::string_view text) {
  auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not a time such as 2026-01-31T12:00:00.000000Z", text));
  };
  size_t pos = 0;
  int year = ReadDigits(text, pos, 4);
  if (!ReadChar(text, pos, '-')) return bad();
  int month = ReadDigits(text, pos, 2);
  if (!ReadChar(text, pos, '-')) return bad();
  int day = ReadDigits(text, pos, 2);
  if (!ReadChar(text, pos, 'T')) return bad();
  int hour = ReadDigits(text, pos, 2);
  if (!ReadChar(text, pos, ':')) return bad();
  int minute = ReadDigits(text, pos, 2);
  if (!ReadChar(text, pos, ':')) return bad();
  int second = ReadDigits(text, pos, 2);
  int micros = 0;
  if (ReadChar(text, pos, '.')) {
    size_t start = pos;
    int scale = 100000;
    while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9' && pos - start < 6) {
      micros += (text[pos] - '0') * scale;
      scale /= 10;
      pos++;
    }
    if (pos == start) return bad();
  }
  if (!ReadChar(text, pos, 'Z') || pos != text.size()) return bad();
  if (year < 0 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
    return bad();
  }
  std::chrono::year_month_day date{std::chrono::year(year),
                                   std::chrono::month(static_cast<unsigned>(month)),
                                   std::chrono::day(static_cast<unsigned>(day))};
  if (month < 0 || day < 0 || !date.ok()) return bad();
  return WallTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second) + Micros(micros);
}

}  // namespace caisson
