#include "base/error.h"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <iterator>

namespace caisson {
namespace {

constexpr ErrorCodeInfo kTable[] = {
#define ERROR_CODE(enumerator, wire, status, retryable, title) \
  {ErrorCode::enumerator, wire, status, retryable, title},
#include "base/error_codes.def"
#undef ERROR_CODE
};

struct ErrnoRow {
  int number;
  std::string_view name;
  ErrorCode code;
};

constexpr ErrnoRow kErrnoTable[] = {
    {EPERM, "EPERM", ErrorCode::kFileAccess},
    {ENOENT, "ENOENT", ErrorCode::kFileNotFound},
    {ESRCH, "ESRCH", ErrorCode::kIo},
    {EINTR, "EINTR", ErrorCode::kIo},
    {EIO, "EIO", ErrorCode::kIo},
    {ENXIO, "ENXIO", ErrorCode::kNotARegularFile},
    {E2BIG, "E2BIG", ErrorCode::kArgumentTooLarge},
    {ENOEXEC, "ENOEXEC", ErrorCode::kCommandNotExecutable},
    {EBADF, "EBADF", ErrorCode::kIo},
    {EAGAIN, "EAGAIN", ErrorCode::kIo},
    {ENOMEM, "ENOMEM", ErrorCode::kIo},
    {EACCES, "EACCES", ErrorCode::kFileAccess},
    {EFAULT, "EFAULT", ErrorCode::kIo},
    {EBUSY, "EBUSY", ErrorCode::kIo},
    {EEXIST, "EEXIST", ErrorCode::kFileExists},
    {EXDEV, "EXDEV", ErrorCode::kOutsideRoot},
    {ENODEV, "ENODEV", ErrorCode::kIo},
    {ENOTDIR, "ENOTDIR", ErrorCode::kNotADirectory},
    {EISDIR, "EISDIR", ErrorCode::kIsDirectory},
    {EINVAL, "EINVAL", ErrorCode::kIo},
    {ENFILE, "ENFILE", ErrorCode::kIo},
    {EMFILE, "EMFILE", ErrorCode::kIo},
    {ETXTBSY, "ETXTBSY", ErrorCode::kIo},
    {EFBIG, "EFBIG", ErrorCode::kFileTooLarge},
    {ENOSPC, "ENOSPC", ErrorCode::kDiskFull},
    {EROFS, "EROFS", ErrorCode::kReadOnly},
    {EPIPE, "EPIPE", ErrorCode::kConnectionLost},
    {ENAMETOOLONG, "ENAMETOOLONG", ErrorCode::kInvalidPath},
    {ENOSYS, "ENOSYS", ErrorCode::kNotSupported},
    {ENOTEMPTY, "ENOTEMPTY", ErrorCode::kDirectoryNotEmpty},
    {ELOOP, "ELOOP", ErrorCode::kSymlinkLoop},
    {EOVERFLOW, "EOVERFLOW", ErrorCode::kFileTooLarge},
    {EILSEQ, "EILSEQ", ErrorCode::kInvalidPath},
    {EUSERS, "EUSERS", ErrorCode::kIo},
    {EOPNOTSUPP, "EOPNOTSUPP", ErrorCode::kNotSupported},
    {EADDRINUSE, "EADDRINUSE", ErrorCode::kAddressInUse},
    {EADDRNOTAVAIL, "EADDRNOTAVAIL", ErrorCode::kIo},
    {ECONNRESET, "ECONNRESET", ErrorCode::kConnectionLost},
    {ENOTCONN, "ENOTCONN", ErrorCode::kConnectionLost},
    {ETIMEDOUT, "ETIMEDOUT", ErrorCode::kDeadlineExceeded},
    {ECONNREFUSED, "ECONNREFUSED", ErrorCode::kUnavailable},
    {EHOSTUNREACH, "EHOSTUNREACH", ErrorCode::kUnavailable},
    {ENETUNREACH, "ENETUNREACH", ErrorCode::kUnavailable},
    {EDQUOT, "EDQUOT", ErrorCode::kDiskFull},
    {ECANCELED, "ECANCELED", ErrorCode::kCancelled},
};

const ErrnoRow* FindErrno(int number) {
  for (const ErrnoRow& row : kErrnoTable) {
    if (row.number == number) return &row;
  }
  return nullptr;
}

}  // namespace

const ErrorCodeInfo* ErrorCodeTable(size_t& size) {
  size = std::size(kTable);
  return kTable;
}

const ErrorCodeInfo& InfoOf(ErrorCode code) { return kTable[static_cast<size_t>(code)]; }

std::optional<ErrorCode> ErrorCodeFromWire(std::string_view wire) {
  for (const ErrorCodeInfo& row : kTable) {
    if (row.wire == wire) return row.code;
  }
  return std::nullopt;
}

std::string Error::ToString() const {
  std::string text(wire());
  text += ": ";
  text += message;
  if (!cause.empty()) {
    text += " (";
    text += cause;
    text += ')';
  }
  return text;
}

std::string ErrnoName(int error_number) {
  if (const ErrnoRow* row = FindErrno(error_number)) return std::string(row->name);
  char digits[12];
  auto end = std::to_chars(digits, digits + sizeof digits, error_number);
  std::string text = "errno ";
  text.append(digits, end.ptr);
  return text;
}

ErrorCode CodeFromErrno(int error_number) {
  const ErrnoRow* row = FindErrno(error_number);
  return row == nullptr ? ErrorCode::kIo : row->code;
}

Error ErrnoError(int error_number, std::string_view tried) {
  std::string message(tried);
  message += ": ";
  message += ErrnoName(error_number);
  return Error{CodeFromErrno(error_number), std::move(message), {}, std::nullopt};
}

}  // namespace caisson
