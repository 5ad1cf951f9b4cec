// Randomness, injected. Tokens and ids come from the system's generator; tests use a seeded one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>

namespace caisson {

// Thread-safe.
class Random {
 public:
  virtual ~Random() = default;
  virtual void Fill(std::span<uint8_t> bytes) = 0;

  uint64_t Next64();
  // Uniform in [0, bound); bound > 0.
  uint64_t Below(uint64_t bound);
  // `bytes` random bytes as lower-case hex: tokens, nonces.
  std::string Hex(size_t bytes);
};

// getrandom(2). Ends the process if the kernel refuses: nothing safe can follow.
class SystemRandom final : public Random {
 public:
  void Fill(std::span<uint8_t> bytes) override;
};

// Repeatable; for tests and simulation only. Not thread-safe.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}
  void Fill(std::span<uint8_t> bytes) override;

 private:
  std::mt19937_64 engine_;
};

}  // namespace caisson
