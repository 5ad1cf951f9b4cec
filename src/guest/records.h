// Records (protocol.h) from bytes and to bytes. No I/O.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "guest/protocol.h"

namespace caisson::guest {

// Appends one record.
void AppendRecord(std::string& out, RecordType type, uint64_t offset, std::string_view payload);

// Takes a stream of records apart, whatever pieces it comes in, without keeping their payloads.
class RecordReader {
 public:
  struct Step {
    enum class Kind : uint8_t {
      kNone,   // the bytes were used up
      kBegin,  // `header` is known
      kBytes,  // `part` of the payload
      kEnd,    // of the record
    } kind = Kind::kNone;
    RecordHeader header;
    std::string_view part;
  };
  // Takes what one step needs from the front of `bytes`. kInvalidArgument for what is no record.
  Result<Step> Next(std::string_view& bytes);
  // No record is under way: the stream may end here.
  bool between() const { return !record_ && header_size_ == 0; }

 private:
  std::array<uint8_t, RecordHeader::kSize> header_{};
  size_t header_size_ = 0;
  std::optional<RecordHeader> record_;
  uint32_t left_ = 0;  // of its payload
};

}  // namespace caisson::guest
