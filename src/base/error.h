// Errors and results. Every fallible function at a boundary returns Result<T>.
//
// This header is freestanding: the guest and the launcher compile it without exceptions.
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace caisson {

// One enumerator a line of error_codes.def.
enum class ErrorCode : uint16_t {
#define ERROR_CODE(enumerator, wire, status, retryable, title) enumerator,
#include "base/error_codes.def"
#undef ERROR_CODE
};

// What the table says of a code.
struct ErrorCodeInfo {
  ErrorCode code;
  std::string_view wire;  // the stable name clients see
  int http_status;
  bool retryable;
  std::string_view title;  // one sentence, no details
};

// The whole table, in declaration order; `size` receives the number of rows.
const ErrorCodeInfo* ErrorCodeTable(size_t& size);
const ErrorCodeInfo& InfoOf(ErrorCode code);
// The inverse of `wire`; nothing for an unknown name.
std::optional<ErrorCode> ErrorCodeFromWire(std::string_view wire);

// Why something failed.
//
// `message` is for the caller: what failed, which limit or rule, what to do. `cause` is for the
// operator's log only: errno texts, provider replies, host paths. Neither is ever parsed.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string cause;
  // Overrides the table's default where this occurrence is known better.
  std::optional<bool> retryable_override;

  bool retryable() const { return retryable_override.value_or(InfoOf(code).retryable); }
  std::string_view wire() const { return InfoOf(code).wire; }
  // "code: message (cause)", for logs and the terminal.
  std::string ToString() const;
};

template <typename T>
using Result = std::expected<T, Error>;

// `return Fail(ErrorCode::kNotFound, "…")`
inline std::unexpected<Error> Fail(ErrorCode code, std::string message, std::string cause = {}) {
  return std::unexpected(Error{code, std::move(message), std::move(cause), std::nullopt});
}
inline std::unexpected<Error> Fail(Error error) { return std::unexpected(std::move(error)); }

// A failed system call: code kIo unless the errno says better (see CodeFromErrno); the message
// names what was tried, e.g. ErrnoError(errno, "open /etc/passwd").
Error ErrnoError(int error_number, std::string_view tried);
// ENOENT → kFileNotFound, EACCES → kFileAccess, ENOSPC → kDiskFull, …; kIo for the rest.
ErrorCode CodeFromErrno(int error_number);
// "ENOENT" and the like; "errno 999" for an unknown number. Stable, unlike strerror.
std::string ErrnoName(int error_number);

}  // namespace caisson

// Evaluates `expr` (a Result); returns its error from the enclosing function, or yields nothing.
#define CAISSON_CONCAT_INNER(a, b) a##b
#define CAISSON_CONCAT(a, b) CAISSON_CONCAT_INNER(a, b)
#define CAISSON_TRY(expr)                                     \
  do {                                                        \
    if (auto caisson_try = (expr); !caisson_try.has_value())  \
      return std::unexpected(std::move(caisson_try).error()); \
  } while (false)
// CAISSON_ASSIGN(auto value, Call()); declares or assigns `value`.
#define CAISSON_ASSIGN(lhs, expr) \
  CAISSON_ASSIGN_INNER(CAISSON_CONCAT(caisson_result_, __LINE__), lhs, expr)
#define CAISSON_ASSIGN_INNER(tmp, lhs, expr)                            \
  auto tmp = (expr);                                                    \
  if (!tmp.has_value()) return std::unexpected(std::move(tmp).error()); \
  lhs = std::move(tmp).value()
// The same inside a coroutine.
#define CAISSON_CO_TRY(expr)                                     \
  do {                                                           \
    if (auto caisson_try = (expr); !caisson_try.has_value())     \
      co_return std::unexpected(std::move(caisson_try).error()); \
  } while (false)
#define CAISSON_CO_ASSIGN(lhs, expr) \
  CAISSON_CO_ASSIGN_INNER(CAISSON_CONCAT(caisson_result_, __LINE__), lhs, expr)
#define CAISSON_CO_ASSIGN_INNER(tmp, lhs, expr)                            \
  auto tmp = (expr);                                                       \
  if (!tmp.has_value()) co_return std::unexpected(std::move(tmp).error()); \
  lhs = std::move(tmp).value()
