#include "sandbox/seccomp_policy.h"

#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace caisson::sandbox {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kAuditArch = AUDIT_ARCH_AARCH64;
#else
#error "no system-call filter for this architecture"
#endif

// Calls younger than the libseccomp of the oldest supported distribution. From 424 on the numbers
// are the same on every architecture.
int NumberOf(std::string_view name) {
  static const std::map<std::string_view, int> kYoung{
      {"cachestat", 451},    {"fchmodat2", 452},     {"map_shadow_stack", 453},
      {"futex_wake", 454},   {"futex_wait", 455},    {"futex_requeue", 456},
      {"mseal", 462},        {"setxattrat", 463},    {"getxattrat", 464},
      {"listxattrat", 465},  {"removexattrat", 466}, {"open_tree_attr", 467},
      {"file_getattr", 468}, {"file_setattr", 469}};
  int number = seccomp_syscall_resolve_name(std::string(name).c_str());
  if (number >= 0) return number;
  auto young = kYoung.find(name);
  return young == kYoung.end() ? -1 : young->second;
}

using Code = std::vector<sock_filter>;

sock_filter Return(uint32_t action) { return BPF_STMT(BPF_RET | BPF_K, action); }
sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}

constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | ENOSYS;

// What a call that is allowed by its arguments runs: each rule in turn, then the permission.
Code ConditionalCode(std::string_view name) {
  Code code;
  for (const ArgumentRule& rule : ArgumentTable()) {
    if (rule.name != name) continue;
    code.push_back(Load(offsetof(seccomp_data, args) + 8 * rule.argument));  // the low half
    code.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule.mask));
    size_t left = rule.values.size();
    // A match jumps behind the instruction that follows the comparisons.
    for (uint32_t value : rule.values) {
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, static_cast<uint8_t>(left--), 0));
    }
    if (!rule.one_of) code.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
    code.push_back(Return(kRefuse));
  }
  code.push_back(Return(SECCOMP_RET_ALLOW));
  return code;
}

// All numbers from `from` to the next range's run the same code.
struct Range {
  uint32_t from;
  Code code;
};

bool Same(const Code& a, const Code& b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(sock_filter)) == 0;
}

std::vector<Range> RangesOf(FilterKind kind) {
  std::map<uint32_t, Code> calls;
  for (const SyscallGroup& group : SyscallTable()) {
    for (std::string_view name : group.names) {
      int number = NumberOf(name);
      if (number < 0) continue;  // not on this architecture
      Code& code = calls[static_cast<uint32_t>(number)];
      switch (group.rule) {
        case SyscallRule::kAllow:
          code = {Return(SECCOMP_RET_ALLOW)};
          break;
        case SyscallRule::kAllowOuter:
          code = {Return(kind == FilterKind::kOuter ? SECCOMP_RET_ALLOW : kUnknown)};
          break;
        case SyscallRule::kDeny:
          code = {Return(kRefuse)};
          break;
        case SyscallRule::kConditional:
          code = ConditionalCode(name);
          break;
      }
    }
  }
  std::vector<Range> ranges;
  auto add = [&](uint32_t from, Code code) {
    if (ranges.empty() || !Same(ranges.back().code, code))
      ranges.push_back({from, std::move(code)});
  };
  uint32_t next = 0;
  for (auto& [number, code] : calls) {
    if (number != next) add(next, {Return(kUnknown)});
    add(number, std::move(code));
    next = number + 1;
  }
  add(next, {Return(kUnknown)});
#if defined(__x86_64__)
  add(__X32_SYSCALL_BIT, {Return(SECCOMP_RET_KILL_PROCESS)});
  add(~0u, {Return(kUnknown)});  // -1: a call that a tracer took away
#endif
  return ranges;
}

// A binary search over the ranges; the number is loaded.
Code Tree(std::span<const Range> ranges) {
  if (ranges.size() == 1) return ranges[0].code;
  size_t middle = ranges.size() / 2;
  Code below = Tree(ranges.first(middle));
  Code above = Tree(ranges.subspan(middle));
  Code code;
  uint32_t bound = ranges[middle].from;
  if (below.size() <= 255) {
    code.push_back(
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bound, static_cast<uint8_t>(below.size()), 0));
  } else {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, bound, 0, 1));
    code.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(below.size())));
  }
  code.insert(code.end(), below.begin(), below.end());
  code.insert(code.end(), above.begin(), above.end());
  return code;
}

}  // namespace

Result<std::string> CompileFilter(FilterKind kind) {
  Code code{Load(offsetof(seccomp_data, arch)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0), Return(SECCOMP_RET_KILL_PROCESS),
            Load(offsetof(seccomp_data, nr))};
  Code tree = Tree(RangesOf(kind));
  code.insert(code.end(), tree.begin(), tree.end());
  if (code.size() > BPF_MAXINSNS) {
    return Fail(ErrorCode::kInternal, "the system-call filter is too long for the kernel");
  }
  return std::string(reinterpret_cast<const char*>(code.data()), code.size() * sizeof(sock_filter));
}

}  // namespace caisson::sandbox
