// The table of system calls. Order inside a group has no meaning; a name stands in one group only.
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>

#include "sandbox/seccomp_policy.h"

namespace caisson::sandbox {
namespace {

using Names = std::string_view;

constexpr Names kFiles[] = {
    "access", "chdir", "chmod", "chown", "chown32", "close", "close_range", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fadvise64_64",
    "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat",
    "fcntl", "fcntl64", "fdatasync", "fgetxattr", "flistxattr", "flock", "fremovexattr",
    "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs", "fstatfs64", "fsync", "ftruncate",
    "ftruncate64", "futimesat", "getcwd", "getdents", "getdents64", "getxattr", "getxattrat",
    "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown", "lchown32",
    "lgetxattr", "link", "linkat", "listxattr", "listxattrat", "llistxattr", "_llseek",
    "lremovexattr", "lseek", "lsetxattr", "lstat", "lstat64", "mkdir", "mkdirat", "mknod",
    "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pread64", "preadv",
    "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat",
    "readv", "removexattr", "removexattrat", "rename", "renameat", "renameat2", "rmdir",
    "sendfile", "sendfile64", "setxattr", "setxattrat", "splice", "stat", "stat64", "statfs",
    "statfs64", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "sync_file_range2",
    "syncfs", "tee", "truncate", "truncate64", "umask", "unlink", "unlinkat", "utime", "utimensat",
    "utimensat_time64", "utimes", "vmsplice", "write", "writev", "file_getattr", "file_setattr"};
constexpr Names kMemory[] = {
    "brk", "cachestat", "madvise", "map_shadow_stack", "membarrier", "memfd_create",
    "memfd_secret", "mincore", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "mprotect",
    "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc", "pkey_free",
    "pkey_mprotect", "process_madvise", "process_mrelease", "remap_file_pages"};
constexpr Names kProcesses[] = {
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork",
    "get_robust_list", "get_thread_area", "getcpu", "getegid", "getegid32", "geteuid",
    "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32", "getpgid", "getpgrp", "getpid",
    "getppid", "getpriority", "getresgid", "getresgid32", "getresuid", "getresuid32", "getrlimit",
    "getrusage", "getsid", "gettid", "getuid", "getuid32", "ioprio_get", "ioprio_set", "kill",
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "nice",
    "pidfd_open", "pidfd_send_signal", "prctl", "prlimit64", "rseq", "sched_get_priority_max",
    "sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_rr_get_interval", "sched_rr_get_interval_time64",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield",
    "seccomp", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsgid32",
    "setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setpgid",
    "setpriority", "setregid", "setregid32", "setresgid", "setresgid32", "setresuid",
    "setresuid32", "setreuid", "setreuid32", "setrlimit", "setsid", "setuid", "setuid32",
    "sysinfo", "tgkill", "times", "tkill", "ugetrlimit", "uname", "vfork", "wait4", "waitid",
    "waitpid", "rt_tgsigqueueinfo", "rt_sigqueueinfo"};
constexpr Names kSignalsAndTime[] = {
    "alarm", "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64",
    "clock_nanosleep", "clock_nanosleep_time64", "getitimer", "gettimeofday", "nanosleep",
    "pause", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "setitimer", "sigaltstack",
    "signalfd", "signalfd4", "sigprocmask", "sigreturn", "time", "timer_create", "timer_delete",
    "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime",
    "timerfd_settime64"};
constexpr Names kWaiting[] = {
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "futex", "futex_requeue",
    "futex_time64", "futex_wait", "futex_waitv", "futex_wake", "io_cancel", "io_destroy",
    "io_getevents", "io_pgetevents", "io_pgetevents_time64", "io_setup", "io_submit", "_newselect",
    "pipe", "pipe2", "poll", "ppoll", "ppoll_time64", "pselect6", "pselect6_time64", "select"};
constexpr Names kSockets[] = {
    "accept", "accept4", "bind", "connect", "getpeername", "getrandom", "getsockname",
    "getsockopt", "listen", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg", "send",
    "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown"};
constexpr Names kSystemVAndQueues[] = {
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64",
    "mq_timedsend", "mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd",
    "semctl", "semget", "semop", "semtimedop", "semtimedop_time64", "shmat", "shmctl", "shmdt",
    "shmget"};
constexpr Names kByArguments[] = {"socket", "socketpair", "clone", "ioctl", "personality"};
constexpr Names kClone3[] = {"clone3"};

constexpr Names kIoUring[] = {"io_uring_setup", "io_uring_enter", "io_uring_register"};
constexpr Names kKeys[] = {"add_key", "keyctl", "request_key"};
constexpr Names kKernelSurface[] = {"bpf", "perf_event_open", "userfaultfd", "fanotify_init",
                                    "fanotify_mark", "lookup_dcookie", "modify_ldt"};
constexpr Names kOtherProcesses[] = {"ptrace", "process_vm_readv", "process_vm_writev", "kcmp",
                                     "pidfd_getfd"};
constexpr Names kHandles[] = {"open_by_handle_at"};
constexpr Names kMounts[] = {"mount", "umount", "umount2", "pivot_root", "chroot", "fsopen",
                             "fsconfig", "fsmount", "fspick", "open_tree", "open_tree_attr",
                             "move_mount", "mount_setattr"};
constexpr Names kNamespaces[] = {"unshare", "setns"};
constexpr Names kHostAdministration[] = {
    "acct", "adjtimex", "clock_adjtime", "clock_adjtime64", "clock_settime", "clock_settime64",
    "create_module", "delete_module", "finit_module", "get_kernel_syms", "init_module", "ioperm",
    "iopl", "kexec_file_load", "kexec_load", "nfsservctl", "query_module", "quotactl",
    "quotactl_fd", "reboot", "setdomainname", "sethostname", "settimeofday", "stime", "swapoff",
    "swapon", "_sysctl", "sysfs", "syslog", "uselib", "ustat", "vhangup", "vm86", "vm86old"};
constexpr Names kNuma[] = {"get_mempolicy", "mbind", "migrate_pages", "move_pages",
                           "set_mempolicy", "set_mempolicy_home_node"};

constexpr std::array<SyscallGroup, 18> kTable{{
    {"files and directories; permissions are the kernel's own", SyscallRule::kAllow, kFiles},
    {"a process's own memory", SyscallRule::kAllow, kMemory},
    {"processes, identity and limits; no capability is there to use", SyscallRule::kAllow,
     kProcesses},
    {"signals, timers and clocks to read", SyscallRule::kAllow, kSignalsAndTime},
    {"waiting for events", SyscallRule::kAllow, kWaiting},
    {"use of sockets; which may be made is decided by socket()", SyscallRule::kAllow, kSockets},
    {"System V and POSIX queues, of the sandbox's own ipc namespace", SyscallRule::kAllow,
     kSystemVAndQueues},
    {"allowed by their arguments", SyscallRule::kConditional, kByArguments},
    {"its flags lie in memory, where a filter cannot look; the guest needs it to start a command in "
     "a cgroup, libc falls back to clone",
     SyscallRule::kAllowOuter, kClone3},
    {"a second way to most other calls, past every filter", SyscallRule::kDeny, kIoUring},
    {"kernel keys are not separated by namespaces", SyscallRule::kDeny, kKeys},
    {"kernel interfaces with a record of privilege escalation", SyscallRule::kDeny,
     kKernelSurface},
    {"reach into other processes", SyscallRule::kDeny, kOtherProcesses},
    {"opens files past the mount namespace", SyscallRule::kDeny, kHandles},
    {"mounts are made before the sandbox starts", SyscallRule::kDeny, kMounts},
    {"namespaces give new capabilities", SyscallRule::kDeny, kNamespaces},
    {"concerns the host and not a sandbox", SyscallRule::kDeny, kHostAdministration},
    {"memory placement concerns all users of a machine", SyscallRule::kDeny, kNuma},
}};

constexpr uint32_t kAll = 0xffffffff;
constexpr uint32_t kNamespaceFlags = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                     CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
constexpr uint32_t kDomains[] = {AF_UNIX, AF_INET, AF_INET6};
constexpr uint32_t kSocketTypes[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
constexpr uint32_t kPairDomains[] = {AF_UNIX};
constexpr uint32_t kNoFlags[] = {0};
constexpr uint32_t kTerminalInput[] = {TIOCSTI, TIOCLINUX};
constexpr uint32_t kPersonas[] = {0x0, 0x8, 0x20000, 0x20008, kAll};

constexpr std::array<ArgumentRule, 6> kArguments{{
    {"socket", 0, kAll, true, kDomains, "no netlink, packet, vsock or crypto sockets"},
    {"socket", 1, 0xf, true, kSocketTypes, "no raw sockets; the higher bits are flags"},
    {"socketpair", 0, kAll, true, kPairDomains, "pairs of unix sockets only"},
    {"clone", 0, kNamespaceFlags, true, kNoFlags, "namespaces give new capabilities"},
    {"ioctl", 1, kAll, false, kTerminalInput, "types into the terminal of another session"},
    {"personality", 0, kAll, true, kPersonas, "Linux or 32-bit uname, or a question; as in Docker"},
}};

}  // namespace

std::span<const ArgumentRule> ArgumentTable() { return kArguments; }

std::span<const SyscallGroup> SyscallTable() { return kTable; }

}  // namespace caisson::sandbox
