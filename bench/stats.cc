#include "stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace caisson::bench {

double Samples::At(double fraction) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::ranges::sort(sorted);
  auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

void PrintTitle(std::string_view title) {
  fmt::print("\n{}\n{:<50} {:>6} {:>9} {:>9} {:>9} {:>9}\n", title, "ms", "n", "min", "p50", "p90",
             "p99");
  std::fflush(stdout);
}

void PrintRow(std::string_view name, const Samples& samples, std::string_view note) {
  fmt::print("{:<50} {:>6} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}{}{}\n", name, samples.size(),
             samples.At(0), samples.At(0.5), samples.At(0.9), samples.At(0.99),
             note.empty() ? "" : "  ", note);
  std::fflush(stdout);
}

void PrintSpeed(std::string_view name, const Samples& samples, uint64_t bytes) {
  double megabytes = static_cast<double>(bytes) / 1e6;
  PrintRow(name, samples,
           fmt::format("{:.0f} MB/s at p50", megabytes * 1000 / std::max(samples.At(0.5), 1e-6)));
}

void PrintLine(std::string_view text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

}  // namespace caisson::bench
