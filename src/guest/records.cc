#include "guest/records.h"

#include <algorithm>

namespace caisson::guest {

void AppendRecord(std::string& out, RecordType type, uint64_t offset, std::string_view payload) {
  auto header = EncodeRecordHeader({type, static_cast<uint32_t>(payload.size()), offset});
  out.append(reinterpret_cast<const char*>(header.data()), header.size());
  out.append(payload);
}

Result<RecordReader::Step> RecordReader::Next(std::string_view& bytes) {
  if (record_ && left_ == 0) {
    Step step{Step::Kind::kEnd, *record_, {}};
    record_.reset();
    return step;
  }
  if (bytes.empty()) return Step{};
  if (record_) {
    Step step{Step::Kind::kBytes, *record_, bytes.substr(0, left_)};
    left_ -= static_cast<uint32_t>(step.part.size());
    bytes.remove_prefix(step.part.size());
    return step;
  }
  size_t size = std::min(header_.size() - header_size_, bytes.size());
  std::copy_n(bytes.begin(), size, reinterpret_cast<char*>(header_.data()) + header_size_);
  header_size_ += size;
  bytes.remove_prefix(size);
  if (header_size_ < header_.size()) return Step{};
  header_size_ = 0;
  record_ = DecodeRecordHeader(header_);
  if (!record_) return Fail(ErrorCode::kInvalidArgument, "the body has bytes that are no record");
  left_ = record_->length;
  return Step{Step::Kind::kBegin, *record_, {}};
}

}  // namespace caisson::guest
