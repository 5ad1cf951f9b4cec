#include "sandbox/seccomp_policy.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "base/syscall.h"
#include "base/unique_fd.h"

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

struct Release {
  void operator()(void* context) const { seccomp_release(context); }
};

class Compiler {
 public:
  explicit Compiler(FilterKind kind) : kind_(kind) {}

  Result<std::string> Compile() {
    context_.reset(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)));
    if (context_ == nullptr) return Fail(ErrorCode::kHostUnsupported, "libseccomp does not start");
    // x32 is told from x86-64 by a bit of the number; libseccomp takes it for a foreign one too.
    Check(seccomp_attr_set(context_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "arch");
    Check(seccomp_attr_set(context_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2), "optimize");
    for (const SyscallGroup& group : SyscallTable()) AddGroup(group);
    if (!error_.empty()) return Fail(ErrorCode::kInternal, "making the system-call filter", error_);
    CAISSON_ASSIGN(std::string body, Export());
    return Prelude() + body;
  }

 private:
  void Check(int result, std::string_view what) {
    if (result < 0 && error_.empty()) error_ = std::string(what) + ": " + ErrnoName(-result);
  }

  void Add(uint32_t action, std::string_view name) {
    int number = NumberOf(name);
    if (number < 0) return;  // not on this architecture
    Check(seccomp_rule_add_array(context_.get(), action, number, 0, nullptr), name);
  }

  void AddGroup(const SyscallGroup& group) {
    for (std::string_view name : group.names) {
      switch (group.rule) {
        case SyscallRule::kAllow:
        case SyscallRule::kConditional:  // Prelude() has refused what is to be refused
          Add(SCMP_ACT_ALLOW, name);
          break;
        case SyscallRule::kAllowOuter:
          if (kind_ == FilterKind::kOuter) Add(SCMP_ACT_ALLOW, name);
          break;
        case SyscallRule::kDeny:
          Add(SCMP_ACT_ERRNO(EPERM), name);
          break;
      }
    }
  }

  // The argument rules, in front of libseccomp's program: it compares 64 bits where the kernel
  // looks at 32, so that "any but TIOCSTI" could be passed by setting a high bit.
  static std::string Prelude() {
    std::vector<sock_filter> body;
    for (const ArgumentRule& rule : ArgumentTable()) {
      int number = NumberOf(rule.name);
      if (number < 0) continue;
      std::vector<sock_filter> block;
      auto offset = offsetof(seccomp_data, args) + 8 * rule.argument;  // the low half
      block.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
      block.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule.mask));
      size_t left = rule.values.size();
      // A match jumps behind the instruction that follows the comparisons.
      for (uint32_t value : rule.values) {
        block.push_back(
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, static_cast<uint8_t>(left--), 0));
      }
      constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
      if (!rule.one_of) block.push_back(BPF_STMT(BPF_JMP | BPF_JA, 1));
      block.push_back(BPF_STMT(BPF_RET | BPF_K, kRefuse));
      // Of another call: over this block.
      body.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
      body.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0,
                              static_cast<uint8_t>(block.size())));
      body.insert(body.end(), block.begin(), block.end());
    }
    // A foreign architecture has other numbers; libseccomp's part deals with it.
    std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kAuditArch, 1, 0),
                                  BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(body.size()))};
    code.insert(code.end(), body.begin(), body.end());
    return std::string(reinterpret_cast<const char*>(code.data()),
                       code.size() * sizeof(sock_filter));
  }

  Result<std::string> Export() {
    UniqueFd file(memfd_create("caisson-filter", MFD_CLOEXEC));
    if (!file) return Fail(ErrnoError(errno, "memfd_create"));
    if (int result = seccomp_export_bpf(context_.get(), file.get()); result < 0) {
      return Fail(ErrnoError(-result, "export the system-call filter"));
    }
    if (lseek(file.get(), 0, SEEK_SET) < 0) return Fail(ErrnoError(errno, "lseek"));
    return ReadAll(file.get(), BPF_MAXINSNS * sizeof(sock_filter));
  }

  FilterKind kind_;
  std::unique_ptr<void, Release> context_;
  std::string error_;
};

}  // namespace

Result<std::string> CompileFilter(FilterKind kind) { return Compiler(kind).Compile(); }

}  // namespace caisson::sandbox
