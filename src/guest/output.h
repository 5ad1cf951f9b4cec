// The output of one exec: what is kept of it, in bounded memory, addressed by offset.
//
// An offset counts the bytes of stdout and stderr together in arrival order, skipped ones included.
// Layout: [head: up to `head_limit`, of which the last 256 KiB are kept] [skipped] [tail].
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>

#include "guest/kept_output.h"
#include "guest/protocol.h"

namespace caisson::guest {

// A ring of output bytes with the stream each came from. Memory is mapped at the first byte and
// used by the page, so that a short output costs one page.
class OutputRing {
 public:
  explicit OutputRing(size_t capacity) : capacity_(capacity) {}
  ~OutputRing();
  OutputRing(const OutputRing&) = delete;
  OutputRing& operator=(const OutputRing&) = delete;

  uint64_t first() const { return first_; }  // offset of the oldest byte kept
  uint64_t end() const { return end_; }
  size_t capacity() const { return capacity_; }
  // For an empty ring: where it starts.
  void StartAt(uint64_t offset) { first_ = end_ = offset; }

  // Contiguous memory for the next bytes, at most `want`; what lies in it is overwritten by Commit.
  // Empty when memory is short.
  std::span<char> Space(size_t want);
  void Commit(RecordType type, size_t size);

  struct Piece {
    RecordType type{};
    std::string_view bytes;
  };
  // Bytes of one stream from `offset` on, at most `limit`; first() <= offset < end().
  Piece Read(uint64_t offset, size_t limit) const;
  // Bytes of that stream that have been overwritten.
  uint64_t evicted(RecordType type) const {
    return type == RecordType::kStdout ? evicted_[0] : evicted_[1];
  }

 private:
  struct Segment {
    RecordType type{};
    uint64_t start = 0;  // it ends where the next starts
  };

  const size_t capacity_;
  char* memory_ = nullptr;
  uint64_t first_ = 0;
  uint64_t end_ = 0;
  std::deque<Segment> segments_;
  uint64_t evicted_[2] = {0, 0};
};

class OutputLog {
 public:
  // Limits in bytes; `tail_limit` counts only with a finite `head_limit`.
  OutputLog(uint64_t head_limit, size_t tail_limit);

  // Where a reader stands. kTail pieces are given only after Finish.
  struct Step {
    enum class Kind : uint8_t { kNothing, kData, kGapNotKept, kGapLimit } kind = Kind::kNothing;
    OutputRing::Piece piece;
    uint64_t skipped = 0;
  };
  Step Next(uint64_t offset, size_t limit) const;

  // How many bytes may be taken in now, if the slowest attached reader stands at `slowest`.
  size_t Room(uint64_t slowest) const;
  static constexpr uint64_t kNoReader = UINT64_MAX;

  // Reads once from `fd`, at most `limit` bytes, into the right place. Returns read(2)'s result
  // (0: end of file; -1: errno).
  long TakeFrom(int fd, RecordType type, size_t limit);
  // All that is taken in from now on is given to `kept`, too, which outlives this.
  void KeepIn(KeptOutput* kept) { kept_ = kept; }
  // No more will be taken in: the tail may be read.
  void Finish() { finished_ = true; }

  uint64_t total() const { return stdout_bytes_ + stderr_bytes_; }
  uint64_t stdout_bytes() const { return stdout_bytes_; }
  uint64_t stderr_bytes() const { return stderr_bytes_; }
  bool over_limit() const { return total() > head_limit_; }
  uint64_t skipped(RecordType type) const;
  uint64_t first_kept() const { return head_.first(); }

 private:
  const uint64_t head_limit_;
  OutputRing head_;
  OutputRing tail_;
  uint64_t stdout_bytes_ = 0;
  uint64_t stderr_bytes_ = 0;
  uint64_t dropped_[2] = {0, 0};  // never in a ring
  bool finished_ = false;
  KeptOutput* kept_ = nullptr;
};

}  // namespace caisson::guest
