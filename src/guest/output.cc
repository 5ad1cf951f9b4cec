#include "guest/output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace caisson::guest {

OutputRing::~OutputRing() {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
}

std::span<char> OutputRing::Space(size_t want) {
  if (capacity_ == 0) return {};
  if (memory_ == nullptr) {
    void* memory =
        ::mmap(nullptr, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return {};
    memory_ = static_cast<char*>(memory);
  }
  size_t at = end_ % capacity_;
  return {memory_ + at, std::min(want, capacity_ - at)};
}

void OutputRing::Commit(RecordType type, size_t size) {
  if (size == 0) return;
  if (segments_.empty() || segments_.back().type != type) segments_.push_back({type, end_});
  end_ += size;
  if (end_ - first_ <= capacity_) return;
  uint64_t new_first = end_ - capacity_;
  while (!segments_.empty()) {
    uint64_t segment_end = segments_.size() > 1 ? segments_[1].start : end_;
    uint64_t from = std::max(segments_.front().start, first_);
    uint64_t until = std::min(segment_end, new_first);
    if (until > from)
      evicted_[segments_.front().type == RecordType::kStdout ? 0 : 1] += until - from;
    if (segment_end > new_first) break;
    segments_.pop_front();
  }
  first_ = new_first;
}

OutputRing::Piece OutputRing::Read(uint64_t offset, size_t limit) const {
  auto after =
      std::upper_bound(segments_.begin(), segments_.end(), offset,
                       [](uint64_t at, const Segment& segment) { return at < segment.start; });
  uint64_t segment_end = after == segments_.end() ? end_ : after->start;
  size_t at = offset % capacity_;
  size_t size = std::min({static_cast<size_t>(segment_end - offset), capacity_ - at, limit});
  return Piece{std::prev(after)->type, std::string_view(memory_ + at, size)};
}

OutputLog::OutputLog(uint64_t head_limit, size_t tail_limit)
    : head_limit_(head_limit), head_(kReplayBytes), tail_(tail_limit) {
  tail_.StartAt(head_limit);
}

OutputLog::Step OutputLog::Next(uint64_t offset, size_t limit) const {
  Step step;
  if (offset < head_.first()) {
    step.kind = Step::Kind::kGapNotKept;
    step.skipped = head_.first() - offset;
  } else if (offset < head_.end()) {
    step.kind = Step::Kind::kData;
    step.piece = head_.Read(offset, limit);
  } else if (!finished_ || offset >= total()) {
    step.kind = Step::Kind::kNothing;
  } else if (tail_.end() > tail_.first() && offset >= tail_.first()) {
    step.kind = Step::Kind::kData;
    step.piece = tail_.Read(offset, limit);
  } else {
    step.kind = Step::Kind::kGapLimit;
    step.skipped = (tail_.end() > tail_.first() ? tail_.first() : total()) - offset;
  }
  return step;
}

size_t OutputLog::Room(uint64_t slowest) const {
  if (total() >= head_limit_) return kMaxRecordBytes;
  size_t room = kMaxRecordBytes;
  if (slowest != kNoReader && slowest < head_.end()) {
    uint64_t waiting = head_.end() - slowest;
    room = waiting >= kReplayBytes ? 0 : std::min<size_t>(room, kReplayBytes - waiting);
  }
  return room;
}

long OutputLog::TakeFrom(int fd, RecordType type, size_t limit) {
  bool head = total() < head_limit_;
  if (head) limit = static_cast<size_t>(std::min<uint64_t>(limit, head_limit_ - total()));
  OutputRing& ring = head ? head_ : tail_;
  char scratch[kMaxRecordBytes];
  std::span<char> space = ring.Space(limit);
  bool dropped = space.empty();
  if (dropped) space = std::span<char>(scratch, std::min(limit, sizeof scratch));
  long got = 0;
  do {
    got = ::read(fd, space.data(), space.size());
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return got;
  auto size = static_cast<size_t>(got);
  if (kept_ != nullptr) kept_->Add(type, std::string_view(space.data(), size));
  if (dropped) {
    dropped_[type == RecordType::kStdout ? 0 : 1] += size;
  } else {
    ring.Commit(type, size);
  }
  (type == RecordType::kStdout ? stdout_bytes_ : stderr_bytes_) += size;
  return got;
}

uint64_t OutputLog::skipped(RecordType type) const {
  return dropped_[type == RecordType::kStdout ? 0 : 1] + tail_.evicted(type);
}

}  // namespace caisson::guest
