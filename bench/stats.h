// Samples, and the tables they are shown in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace caisson::bench {

// Durations in milliseconds.
class Samples {
 public:
  void Add(double ms) { values_.push_back(ms); }
  size_t size() const { return values_.size(); }
  // Nearest rank; 0 without samples. `fraction` 0 is the minimum.
  double At(double fraction) const;

 private:
  std::vector<double> values_;
};

class Stopwatch {
 public:
  explicit Stopwatch(const Clock& clock) : clock_(clock), start_(clock.MonoNow()) {}
  double Ms() const {
    return std::chrono::duration<double, std::milli>(clock_.MonoNow() - start_).count();
  }

 private:
  const Clock& clock_;
  MonoTime start_;
};

// To standard output.
void PrintTitle(std::string_view title);
void PrintRow(std::string_view name, const Samples& samples, std::string_view note = {});
// With what it means as a speed: each sample moved `bytes`.
void PrintSpeed(std::string_view name, const Samples& samples, uint64_t bytes);
void PrintLine(std::string_view text);

}  // namespace caisson::bench
