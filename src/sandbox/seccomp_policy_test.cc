#include "sandbox/seccomp_policy.h"

#include <asm/unistd.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/syscall.h"
#include "base/unique_fd.h"

namespace caisson::sandbox {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kNative = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kNative = AUDIT_ARCH_AARCH64;
#endif
constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kKill = SECCOMP_RET_KILL_PROCESS;
constexpr uint32_t kEperm = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kEnosys = SECCOMP_RET_ERRNO | ENOSYS;

// The part of classic BPF that seccomp programs use, as the kernel runs it.
class Program {
 public:
  explicit Program(FilterKind kind) : Program(CompileFilter(kind).value()) {}
  explicit Program(const std::string& bytes) {
    code_.resize(bytes.size() / sizeof(sock_filter));
    memcpy(code_.data(), bytes.data(), bytes.size());
  }

  uint32_t Run(const seccomp_data& data) const {
    uint32_t a = 0;
    for (size_t pc = 0; pc < code_.size(); pc++) {
      const sock_filter& i = code_[pc];
      switch (i.code) {
        case BPF_LD | BPF_W | BPF_ABS:
          if (i.k % 4 != 0 || i.k + 4 > sizeof data) return Bad(pc);
          memcpy(&a, reinterpret_cast<const char*>(&data) + i.k, 4);
          break;
        case BPF_ALU | BPF_AND | BPF_K:
          a &= i.k;
          break;
        case BPF_JMP | BPF_JA:
          pc += i.k;
          break;
        case BPF_JMP | BPF_JEQ | BPF_K:
          pc += a == i.k ? i.jt : i.jf;
          break;
        case BPF_JMP | BPF_JGT | BPF_K:
          pc += a > i.k ? i.jt : i.jf;
          break;
        case BPF_JMP | BPF_JGE | BPF_K:
          pc += a >= i.k ? i.jt : i.jf;
          break;
        case BPF_JMP | BPF_JSET | BPF_K:
          pc += (a & i.k) != 0 ? i.jt : i.jf;
          break;
        case BPF_RET | BPF_K:
          return i.k;
        default:
          return Bad(pc);
      }
    }
    return Bad(code_.size());
  }
  uint32_t Call(int number, std::vector<uint64_t> arguments = {}, uint32_t arch = kNative) const {
    seccomp_data data{};
    data.nr = number;
    data.arch = arch;
    for (size_t i = 0; i < arguments.size(); i++) data.args[i] = arguments[i];
    return Run(data);
  }
  size_t size() const { return code_.size(); }

 private:
  static uint32_t Bad(size_t pc) {
    ADD_FAILURE() << "instruction " << pc;
    return 0xdeadbeef;
  }
  std::vector<sock_filter> code_;
};

class SeccompPolicyTest : public testing::Test {
 protected:
  void ExpectBoth(uint32_t want, int number, std::vector<uint64_t> arguments = {},
                  uint32_t arch = kNative) {
    EXPECT_EQ(outer.Call(number, arguments, arch), want) << "outer, call " << number;
    EXPECT_EQ(inner.Call(number, arguments, arch), want) << "inner, call " << number;
  }
  Program outer{FilterKind::kOuter};
  Program inner{FilterKind::kInner};
};

TEST_F(SeccompPolicyTest, OrdinaryCallsAreAllowed) {
  for (int number : {__NR_read,
                     __NR_write,
                     __NR_openat,
                     __NR_close,
                     __NR_mmap,
                     __NR_execve,
                     __NR_execveat,
                     __NR_exit_group,
                     __NR_wait4,
                     __NR_pipe2,
                     __NR_futex,
                     __NR_getrandom,
                     __NR_statx,
                     __NR_newfstatat,
                     __NR_rseq,
                     __NR_prlimit64,
                     __NR_setresuid,
                     __NR_kill,
                     __NR_pidfd_open,
                     __NR_epoll_pwait,
                     __NR_sched_getaffinity,
                     __NR_prctl,
                     __NR_seccomp,
                     __NR_memfd_create,
                     __NR_bind,
                     __NR_connect,
                     __NR_accept4,
                     __NR_inotify_init1,
                     __NR_close_range,
                     452,
                     451,
                     454,
                     455,
                     456,
                     462}) {
    ExpectBoth(kAllow, number);
  }
}

TEST_F(SeccompPolicyTest, DangerousCallsAnswerEperm) {
  for (int number : {__NR_io_uring_setup,
                     __NR_io_uring_enter,
                     __NR_io_uring_register,
                     __NR_keyctl,
                     __NR_add_key,
                     __NR_request_key,
                     __NR_bpf,
                     __NR_perf_event_open,
                     __NR_userfaultfd,
                     __NR_ptrace,
                     __NR_process_vm_readv,
                     __NR_process_vm_writev,
                     __NR_kcmp,
                     __NR_pidfd_getfd,
                     __NR_open_by_handle_at,
                     __NR_mount,
                     __NR_umount2,
                     __NR_pivot_root,
                     __NR_fsopen,
                     __NR_fsconfig,
                     __NR_fsmount,
                     __NR_fspick,
                     __NR_open_tree,
                     __NR_move_mount,
                     __NR_mount_setattr,
                     __NR_chroot,
                     __NR_unshare,
                     __NR_setns,
                     __NR_kexec_load,
                     __NR_init_module,
                     __NR_finit_module,
                     __NR_delete_module,
                     __NR_quotactl,
                     __NR_swapon,
                     __NR_swapoff,
                     __NR_reboot,
                     __NR_acct,
                     __NR_settimeofday,
                     __NR_clock_settime,
                     __NR_sethostname,
                     __NR_syslog,
                     __NR_fanotify_init,
                     __NR_mbind,
                     443,
                     467}) {
    ExpectBoth(kEperm, number);
  }
}

TEST_F(SeccompPolicyTest, UnknownCallsAnswerEnosys) {
  for (int number : {400, 423, 457, 458, 459, 470, 999, 100000, -1}) ExpectBoth(kEnosys, number);
}

TEST_F(SeccompPolicyTest, Clone3IsForTheGuestOnly) {
  EXPECT_EQ(outer.Call(__NR_clone3), kAllow);
  EXPECT_EQ(inner.Call(__NR_clone3), kEnosys);
}

TEST_F(SeccompPolicyTest, CloneMakesNoNamespace) {
  ExpectBoth(kAllow, __NR_clone, {SIGCHLD});
  // A thread as libc makes it.
  ExpectBoth(kAllow, __NR_clone,
             {CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
              CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID});
  ExpectBoth(kAllow, __NR_clone, {CLONE_VM | CLONE_VFORK | SIGCHLD});
  for (uint64_t flag : {CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
                        CLONE_NEWPID, CLONE_NEWNET}) {
    ExpectBoth(kEperm, __NR_clone, {flag | SIGCHLD});
    ExpectBoth(kEperm, __NR_clone, {flag | SIGCHLD | 1ull << 40});
  }
}

TEST_F(SeccompPolicyTest, SocketsByDomainAndType) {
  for (uint64_t domain : {AF_UNIX, AF_INET, AF_INET6}) {
    for (uint64_t type : {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}) {
      ExpectBoth(kAllow, __NR_socket, {domain, type, 0});
      ExpectBoth(kAllow, __NR_socket, {domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0});
    }
    ExpectBoth(kEperm, __NR_socket, {domain, SOCK_RAW, 1});
    ExpectBoth(kEperm, __NR_socket, {domain, SOCK_RAW | SOCK_CLOEXEC | 1ull << 33, 1});
    ExpectBoth(kEperm, __NR_socket, {domain, 10 /* SOCK_PACKET */, 0});
  }
  for (uint64_t domain : {AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_CAN, AF_KEY,
                          AF_TIPC, 44 /* AF_XDP */}) {
    ExpectBoth(kEperm, __NR_socket, {domain, SOCK_DGRAM, 0});
    ExpectBoth(kEperm, __NR_socket, {domain | 1ull << 32, SOCK_RAW, 0});
    ExpectBoth(kEperm, __NR_socketpair, {domain, SOCK_DGRAM, 0});
  }
  ExpectBoth(kAllow, __NR_socketpair, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0});
  // The high half does not count, for the kernel neither.
  ExpectBoth(kAllow, __NR_socket, {AF_INET | 1ull << 32, SOCK_STREAM, 0});
}

TEST_F(SeccompPolicyTest, TerminalInputCannotBeForged) {
  ExpectBoth(kAllow, __NR_ioctl, {0, TCGETS});
  ExpectBoth(kAllow, __NR_ioctl, {0, TIOCGWINSZ});
  ExpectBoth(kAllow, __NR_ioctl, {0, FIONREAD});
  for (uint64_t request : {TIOCSTI, TIOCLINUX}) {
    ExpectBoth(kEperm, __NR_ioctl, {0, request});
    ExpectBoth(kEperm, __NR_ioctl, {0, request | 1ull << 32});
    ExpectBoth(kEperm, __NR_ioctl, {0, request | 0xffffffffull << 32});
  }
}

TEST_F(SeccompPolicyTest, Personality) {
  for (uint64_t persona : {0x0ull, 0x8ull, 0x20000ull, 0x20008ull, 0xffffffffull}) {
    ExpectBoth(kAllow, __NR_personality, {persona});
  }
  ExpectBoth(kEperm, __NR_personality, {0x0400000});  // READ_IMPLIES_EXEC
}

TEST_F(SeccompPolicyTest, ForeignArchitecturesAreKilled) {
  for (int number : {0, 1, 11, 41, 59, 120, 435}) {
    ExpectBoth(kKill, number, {}, AUDIT_ARCH_I386);
    ExpectBoth(kKill, number, {}, AUDIT_ARCH_ARM);
  }
#if defined(__x86_64__)
  for (int number : {0, 1, 59, 520, 545}) ExpectBoth(kKill, number | 0x40000000);
#endif
}

// Whatever the outer filter lets through or not, the inner lets through no more.
TEST_F(SeccompPolicyTest, InnerIsNowhereWiderThanOuter) {
  for (int number = -1; number < 600; number++) {
    if (inner.Call(number) == kAllow) EXPECT_EQ(outer.Call(number), kAllow) << number;
  }
}

// libseccomp, given the same rules, agrees on every number.
TEST_F(SeccompPolicyTest, AgreesWithLibseccomp) {
  for (FilterKind kind : {FilterKind::kOuter, FilterKind::kInner}) {
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (const SyscallGroup& group : SyscallTable()) {
      if (group.rule == SyscallRule::kConditional) continue;
      bool allow = group.rule == SyscallRule::kAllow ||
                   (group.rule == SyscallRule::kAllowOuter && kind == FilterKind::kOuter);
      if (group.rule == SyscallRule::kAllowOuter && !allow) continue;
      for (std::string_view name : group.names) {
        int number = seccomp_syscall_resolve_name(std::string(name).c_str());
        if (number < 0) continue;
        ASSERT_EQ(
            seccomp_rule_add(context, allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), number, 0), 0)
            << name;
      }
    }
    UniqueFd file(memfd_create("filter", MFD_CLOEXEC));
    ASSERT_EQ(seccomp_export_bpf(context, file.get()), 0);
    seccomp_release(context);
    lseek(file.get(), 0, SEEK_SET);
    Program theirs(ReadAll(file.get(), 1 << 20).value());
    const Program& ours = kind == FilterKind::kOuter ? outer : inner;
    EXPECT_LT(ours.size(), theirs.size());
    std::set<int> skipped{__NR_socket, __NR_socketpair, __NR_clone, __NR_ioctl, __NR_personality};
    for (int number = -1; number < 600; number++) {
      // Younger than the library: its names are not known to it.
      if (skipped.contains(number) || (number >= 449 && number < 480)) continue;
      EXPECT_EQ(ours.Call(number), theirs.Call(number)) << number;
      EXPECT_EQ(ours.Call(number, {}, AUDIT_ARCH_I386), theirs.Call(number, {}, AUDIT_ARCH_I386));
#if defined(__x86_64__)
      if (number >= 0) EXPECT_EQ(ours.Call(number | 0x40000000), theirs.Call(number | 0x40000000));
#endif
    }
  }
}

TEST_F(SeccompPolicyTest, TableNamesEachCallOnceAndGivesReasons) {
  std::set<std::string_view> seen;
  for (const SyscallGroup& group : SyscallTable()) {
    EXPECT_FALSE(group.reason.empty());
    for (std::string_view name : group.names) EXPECT_TRUE(seen.insert(name).second) << name;
  }
  for (const ArgumentRule& rule : ArgumentTable()) EXPECT_TRUE(seen.contains(rule.name));
}

TEST_F(SeccompPolicyTest, DeterministicAndOfTolerableSize) {
  EXPECT_EQ(CompileFilter(FilterKind::kInner).value(), CompileFilter(FilterKind::kInner).value());
  EXPECT_LT(outer.size(), 300u);
  RecordProperty("instructions", static_cast<int>(inner.size()));
}

}  // namespace
}  // namespace caisson::sandbox
