#include "guest/kept_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/syscall.h"

namespace caisson::guest {

Result<KeptOutput> KeptOutput::Open(uint64_t limit) {
  KeptOutput kept(limit);
  for (Stream& stream : kept.streams_) {
    auto file = OpenFile("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (!file) {
      return Fail(ErrorCode::kNotSupported, "output cannot be kept here: /tmp cannot be written",
                  file.error().cause);
    }
    stream.file = *std::move(file);
  }
  return kept;
}

void KeptOutput::Add(RecordType type, std::string_view bytes) {
  Stream& stream = streams_[Index(type)];
  bytes = bytes.substr(0, static_cast<size_t>(std::min<uint64_t>(room_, bytes.size())));
  while (!bytes.empty()) {
    ssize_t wrote =
        ::pwrite(stream.file.get(), bytes.data(), bytes.size(), static_cast<off_t>(stream.size));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      room_ = 0;  // the disk is full: what comes later would not follow what is there
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
    stream.size += static_cast<uint64_t>(wrote);
    room_ -= static_cast<uint64_t>(wrote);
  }
}

Result<UniqueFd> KeptOutput::Duplicate(RecordType type) const {
  UniqueFd copy(::fcntl(streams_[Index(type)].file.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) return Fail(ErrnoError(errno, "dup"));
  return copy;
}

}  // namespace caisson::guest
