// A body of any size out of one piece, again and again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "http/client.h"

namespace caisson::bench {

inline constexpr size_t kPieceBytes = 256 << 10;

class Pieces final : public http::BodySource {
 public:
  explicit Pieces(uint64_t size) : left_(size) {}
  Task<Result<std::string_view>> Next(Until) override {
    size_t size = static_cast<size_t>(std::min<uint64_t>(left_, piece_.size()));
    left_ -= size;
    co_return std::string_view(piece_).substr(0, size);
  }

 private:
  std::string piece_ = std::string(kPieceBytes, 'c');
  uint64_t left_;
};

}  // namespace caisson::bench
