// Output that is kept in files, to be read by offset after it has gone by: a nameless file for each
// stream, on the sandbox's own disk and within its limit.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/protocol.h"

namespace caisson::guest {

class KeptOutput {
 public:
  // The first `limit` bytes of both streams together are kept. kNotSupported without a /tmp that
  // can be written.
  static Result<KeptOutput> Open(uint64_t limit);

  // Keeps as much of it as there is room for; nothing more once some was not.
  void Add(RecordType type, std::string_view bytes);
  uint64_t size(RecordType type) const { return streams_[Index(type)].size; }
  // The stream's file, to be read while it grows.
  Result<UniqueFd> Duplicate(RecordType type) const;

 private:
  struct Stream {
    UniqueFd file;
    uint64_t size = 0;
  };
  static size_t Index(RecordType type) { return type == RecordType::kStdout ? 0 : 1; }
  explicit KeptOutput(uint64_t limit) : room_(limit) {}

  Stream streams_[2];
  uint64_t room_;
};

}  // namespace caisson::guest
