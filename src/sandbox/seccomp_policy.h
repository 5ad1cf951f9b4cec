// Which system calls a sandbox may make: one table, from which every filter is made.
//
// Two programs are loaded over each other. The outer one holds the guest and all it starts; the
// inner one is loaded by the guest between fork and exec of every command and is stricter. What is
// not in the table answers ENOSYS, so that programs fall back as on an older kernel; what is denied
// on purpose answers EPERM. Calls of a foreign architecture (i386, x32) kill the process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::sandbox {

enum class FilterKind : uint8_t {
  kOuter,  // for the guest
  kInner,  // for commands
};

// What the table says of a group of calls.
enum class SyscallRule : uint8_t {
  kAllow,
  kAllowOuter,   // the guest only; commands get ENOSYS
  kDeny,         // EPERM in both
  kConditional,  // allowed, but for arguments that ArgumentTable() refuses with EPERM
};

struct SyscallGroup {
  std::string_view reason;  // why the rule is so, for the generated documents
  SyscallRule rule;
  std::span<const std::string_view> names;
};
// The whole table. A name that a kernel or architecture does not have is skipped there.
std::span<const SyscallGroup> SyscallTable();

// A condition on one argument of a call: all rows of a call must hold. Only the low 32 bits count,
// as for the kernel; whatever a caller puts above them changes nothing.
struct ArgumentRule {
  std::string_view name;
  unsigned argument;
  uint32_t mask;  // of the argument, before it is compared
  bool one_of;    // true: the value must be one of `values`; false: it must be none of them
  std::span<const uint32_t> values;
  std::string_view reason;
};
std::span<const ArgumentRule> ArgumentTable();

// The program as struct sock_filter[] for this machine's architecture. Deterministic; kInternal
// when it grew too long. A binary search over ranges of numbers with the same rule: a quarter of
// the instructions that libseccomp makes of the same rules (the tests compare both), and the
// kernel's time to load it, which every command pays, is a third.
Result<std::string> CompileFilter(FilterKind kind);

}  // namespace caisson::sandbox
