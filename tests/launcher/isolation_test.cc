// From inside: the adversarial checks that concern the kernel's walls. The number in a comment is
// that of the check in the security reference.
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

class IsolationTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    client_ = std::make_unique<Client>(state_dir_, "--ephemeral");
    box_ = Start(*client_);
  }
  void TearDown() override {
    if (client_ != nullptr) {
      EXPECT_TRUE(Terminate(*client_, box_).ok());
      ExpectCensusAsBefore();
      client_.reset();
    }
    LauncherTest::TearDown();
  }
  std::string Sh(const std::string& command) { return box_.Sh(command).text; }
  // Runs Python; the answer is its last line. call() makes a system call and prints "done" or the
  // errno's name. Line breaks are escaped: one would end the request.
  std::string Py(const std::string& body) {
    std::string line =
        "import ctypes,errno,os,socket\nlibc=ctypes.CDLL(None,use_errno=True)\n"
        "def call(n,*a):\n r=libc.syscall(n,*a)\n"
        " print('done' if r>=0 else errno.errorcode[ctypes.get_errno()])\n" +
        body;
    std::string escaped;
    for (char c : line) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    return box_
        .Sh("printf '%b' \"" + escaped +
            "\" > /tmp/p.py; /usr/bin/python3 /tmp/p.py 2>&1 | tail -1")
        .text;
  }
  std::unique_ptr<Client> client_;
  Box box_;
};

TEST_F(IsolationTest, KernelFilesAreNotWritable) {  // 1
  for (const char* path :
       {"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches", "/proc/irq/default_smp_affinity"}) {
    // Not every kernel has all of them.
    auto refused = AnyOf(HasSubstr("Permission denied"), HasSubstr("Read-only file system"),
                         HasSubstr("nonexistent"));
    EXPECT_THAT(Sh(std::string("echo x > ") + path), refused) << path;
    EXPECT_THAT(box_.Guest(std::string("echo x > ") + path).text, refused) << path;
  }
  EXPECT_THAT(Sh("ls /sys/kernel"), HasSubstr("No such file"));
  EXPECT_EQ(Sh("cat /proc/kcore /proc/timer_list /proc/keys /proc/kmsg 2>/dev/null | head -c 100"),
            "");
}

TEST_F(IsolationTest, NoDirectoryIsReachedThroughDescriptors) {  // 3, 19
  EXPECT_EQ(Sh("for n in $(seq 3 64); do [ -e /proc/self/fd/$n ] && echo $n; done; true"), "");
  EXPECT_EQ(Sh("ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3 ");  // 3 is the directory just listed
  EXPECT_EQ(Sh("bash -c 'echo /proc/$$/fd/*' | tr ' ' '\\n' | sed 's:.*/::' | grep -v 255 | tr "
               "'\\n' ' '"),
            "0 1 2 3 ");
}

TEST_F(IsolationTest, DeviceNodesCannotBeReplaced) {  // 4
  EXPECT_THAT(Sh("rm -f /dev/null; ln -sf /etc/passwd /dev/null; mv /dev/null /dev/x"),
              HasSubstr("Read-only file system"));
  EXPECT_THAT(box_.Guest("rm -f /dev/zero").text, HasSubstr("cannot remove"));
  EXPECT_EQ(Sh("echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1"), " 00 00 00\n");
}

TEST_F(IsolationTest, NoNamespaceCanBeMade) {  // 5
  EXPECT_THAT(Sh("unshare -Ur true"), HasSubstr("not permitted"));
  EXPECT_THAT(Sh("unshare -n true"), HasSubstr("not permitted"));
  EXPECT_EQ(Py("call(435,ctypes.create_string_buffer(88),88)"), "ENOSYS\n");
  EXPECT_EQ(Py("call(56,0x10000000|17,0,0,0,0)"), "EPERM\n");
  EXPECT_EQ(Py("f=os.open('/proc/self/ns/net',0); call(308,f,0)"), "EPERM\n");
  EXPECT_THAT(box_.Guest("unshare -Ur true").text, HasSubstr("not permitted"));
  // The guest may use clone3, but its user namespace allows none below it.
  Py("a=(ctypes.c_ulonglong*11)(); a[0]=0x10000000; a[4]=17; call(435,a,88)");
  EXPECT_EQ(box_.Guest("/usr/bin/python3 /tmp/p.py").text, "ENOSPC\n");
}

TEST_F(IsolationTest, NothingCanBeMounted) {  // 6
  EXPECT_THAT(Sh("mount -t tmpfs x /tmp"),
              AnyOf(HasSubstr("permission denied"), HasSubstr("must be superuser"),
                    HasSubstr("not permitted")));
  EXPECT_EQ(Py("call(165,b'none',b'/tmp',b'tmpfs',0,0)"), "EPERM\n");
  for (const char* call : {"call(166,b'/proc',2)", "call(155,b'.',b'.')", "call(430,b'tmpfs',0)",
                           "call(429,-100,b'/',b'',-100,b'/tmp',0)", "call(428,-100,b'/',1)",
                           "call(442,-100,b'/',0,0,32)", "call(161,b'/tmp')"}) {
    EXPECT_EQ(Py(call), "EPERM\n") << call;
  }
  EXPECT_THAT(box_.Guest("mount -o remount,rw /").text, Not(Eq("")));
  EXPECT_NE(box_.Guest("umount -l /proc").code, 0);
}

TEST_F(IsolationTest, PrivilegedCallsAreRefused) {  // 7, 8, 9, 10
  EXPECT_EQ(Py("call(304,-100,ctypes.create_string_buffer(64),0)"), "EPERM\n");
  for (const char* call :
       {"call(101,16,1,0,0)", "call(310,1,0,0,0,0,0)", "call(311,1,0,0,0,0,0)",
        "call(312,1,1,0,0,0)", "call(321,0,0,0)", "call(298,0,0,-1,-1,0)", "call(323,0)",
        "call(246,0,0,0,0)", "call(320,0,0,0,0,0)", "call(175,0,0,0)", "call(313,0,0,0)",
        "call(250,0,0,0,0,0)", "call(248,0,0,0,0,0)",
        "call(425,8,ctypes.create_string_buffer(120))", "call(438,0,0,0)"}) {
    EXPECT_EQ(Py(call), "EPERM\n") << call;
  }
}

TEST_F(IsolationTest, ForeignSystemCallEntryIsKilled) {  // 11
  // x32: bit 30 of the number. 31 is SIGSYS.
  EXPECT_EQ(
      box_.Sh("printf 'import ctypes\\nctypes.CDLL(None).syscall(0x40000000+39)\\n' > /tmp/a.py; "
              "/usr/bin/python3 /tmp/a.py; echo $?")
          .text,
      "Bad system call\n159\n");
  // i386: int 0x80 in a small program of its own.
  std::string program =
      "printf 'int main(){int r;__asm__ volatile(\"int $0x80\":\"=a\"(r):\"a\"(20));return "
      "r<0?1:0;}' > "
      "/tmp/i.c && gcc -o /tmp/i /tmp/i.c && /tmp/i; echo $?";
  EXPECT_THAT(Sh(program), HasSubstr("159"));
}

TEST_F(IsolationTest, OnlyPlainSocketsCanBeMade) {  // 12
  for (const char* call :
       {"call(41,16,3,0)", "call(41,17,3,0)", "call(41,40,1,0)", "call(41,38,5,0)",
        "call(41,2,3,1)", "call(41,10,3,58)", "call(41,16|1<<32,3,0)"}) {
    EXPECT_EQ(Py(call), "EPERM\n") << call;
  }
  EXPECT_EQ(Py("call(41,2,1,0)"), "done\n");
}

TEST_F(IsolationTest, HostSocketsAreOutOfReach) {  // 13, 14
  EXPECT_THAT(Py("print(socket.socket(socket.AF_UNIX).connect_ex(chr(0)+'caisson-test-abstract'))"),
              AnyOf(Eq("111\n"), Eq("1\n")));
  EXPECT_EQ(Sh("ls /var/run/docker.sock /run/docker.sock /run/containerd " + state_dir_ +
               " 2>&1 | grep -c 'No such file'"),
            "4\n");
}

TEST_F(IsolationTest, SetuidGivesNothingAndDevicesCannotBeMade) {  // 15, 16
  EXPECT_EQ(Sh("cp /usr/bin/id /workspace/id && chmod 4755 /workspace/id && /workspace/id -u"),
            "1000\n");
  EXPECT_EQ(box_.Guest("chown 0 /workspace/id; chmod 4755 /workspace/id; true").code, 0);
  EXPECT_EQ(Sh("/workspace/id -u; grep NoNewPrivs /proc/self/status"), "1000\nNoNewPrivs:\t1\n");
  EXPECT_EQ(Sh("su -c id 2>&1 | grep -c uid=0"), "0\n");
  // Landlock says EACCES before the capability check says EPERM.
  auto refused = AnyOf(HasSubstr("not permitted"), HasSubstr("Permission denied"));
  EXPECT_THAT(Sh("mknod /workspace/sda b 8 0"), refused);
  EXPECT_THAT(box_.Guest("mknod /tmp/sda b 8 0").text, refused);
  EXPECT_EQ(Sh("mkfifo /tmp/fifo && echo made"), "made\n");
  EXPECT_EQ(Sh("grep CapEff /proc/self/status; grep CapPrm /proc/self/status"),
            "CapEff:\t0000000000000000\nCapPrm:\t0000000000000000\n");
  EXPECT_EQ(Sh("grep CapBnd /proc/self/status"), "CapBnd:\t00000000000000e0\n");
}

TEST_F(IsolationTest, CgroupsAreNotReachable) {  // 17
  EXPECT_THAT(Sh("ls /sys/fs/cgroup"), HasSubstr("No such file"));
  // No path of the host shows.
  EXPECT_THAT(Sh("cat /proc/self/cgroup"), Not(HasSubstr("caisson")));
  EXPECT_THAT(Sh("cat /proc/self/cgroup"), Not(HasSubstr("process_api")));
}

TEST_F(IsolationTest, HostIsNotVisibleInProc) {  // 18, 20
  EXPECT_EQ(Sh("ls -d /proc/[0-9]* | wc -l | awk '{print ($1<10)}'"), "1\n");
  std::string mounts = Sh("cat /proc/self/mountinfo");
  EXPECT_THAT(mounts, Not(HasSubstr("/sys/fs/cgroup")));
  EXPECT_THAT(mounts, Not(HasSubstr(state_dir_)));
  EXPECT_THAT(mounts, HasSubstr(" / / ro,"));
  for (const std::string& line : [&] {
         std::vector<std::string> lines;
         for (size_t at = 0; at < mounts.size();) {
           size_t end = mounts.find('\n', at);
           lines.push_back(mounts.substr(at, end - at));
           at = end + 1;
         }
         return lines;
       }()) {
    EXPECT_THAT(line, HasSubstr("nosuid")) << line;
    bool device = line.find(" /dev/") != line.npos;
    if (!device) EXPECT_THAT(line, HasSubstr("nodev"));
    EXPECT_THAT(line, Not(HasSubstr("shared:"))) << line;
    EXPECT_THAT(line, Not(HasSubstr("master:"))) << line;
  }
  EXPECT_EQ(Sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '"), "lo\n");
  EXPECT_THAT(Sh("cat /proc/1/environ"), HasSubstr("Permission denied"));
  EXPECT_NE(box_.Sh("echo x > /proc/1/exe").code, 0);  // 2
  EXPECT_NE(box_.Guest("echo x > /proc/1/exe").code, 0);
  EXPECT_THAT(Sh("ls -l /proc/1/fd /proc/1/exe /proc/1/root /proc/1/cwd"),
              HasSubstr("Permission denied"));
  EXPECT_THAT(Sh("env; cat /proc/self/environ | tr '\\0' '\\n'"), Not(HasSubstr("CAISSON")));
  EXPECT_EQ(Sh("hostname"), "sandbox\n");
}

TEST_F(IsolationTest, KillAllReachesOnlyItsOwn) {  // 21
  box_.Sh("kill -9 -1");
  EXPECT_EQ(box_.Sh("echo usable").text, "usable\n");
}

TEST_F(IsolationTest, TerminalInputCannotBeForged) {  // 22
  EXPECT_EQ(Py("import pty; m,s=pty.openpty(); call(16,s,0x5412,b'x')"), "EPERM\n");
  EXPECT_EQ(Py("import pty; m,s=pty.openpty(); call(16,s,ctypes.c_ulong(0x100005412),b'x')"),
            "EPERM\n");
}

TEST_F(IsolationTest, NoNetworkButLoopback) {                                   // 37, 46
  EXPECT_EQ(Py("print(socket.socket().connect_ex(('8.8.8.8',53)))"), "101\n");  // ENETUNREACH
  EXPECT_EQ(Py("print(socket.socket().connect_ex(('169.254.169.254',80)))"), "101\n");
  EXPECT_THAT(Py("socket.socket(2,2).sendto(b'x',('1.1.1.1',53))"), HasSubstr("unreachable"));
  EXPECT_THAT(Py("socket.getaddrinfo('data.attacker.test',80)"), HasSubstr("rror"));
  EXPECT_EQ(Py("s=socket.socket();s.bind(('127.0.0.1',0));s.listen();c=socket.create_connection(s."
               "getsockname());print('up')"),
            "up\n");
  EXPECT_EQ(Py("print(socket.gethostbyname('localhost'))"), "127.0.0.1\n");
  // A server in another sandbox, on every interface and by an abstract name.
  Box other = Start(*client_);
  EXPECT_EQ(
      other
          .Sh("printf 'import socket,time\\ns=socket.socket();s.bind((\"\",7777));s.listen()\\n"
              "u=socket.socket(1);u.bind(\"\\\\0other\");u.listen();time.sleep(60)\\n' > "
              "/tmp/s.py; "
              "/usr/bin/python3 /tmp/s.py >/dev/null 2>&1 & sleep 0.3; echo up")
          .text,
      "up\n");
  EXPECT_EQ(
      other
          .Sh("printf 'import socket\\nprint(socket.socket().connect_ex((\"127.0.0.1\",7777)))\\n' "
              "> /tmp/c.py; /usr/bin/python3 /tmp/c.py")
          .text,
      "0\n");
  EXPECT_EQ(Py("print(socket.socket().connect_ex(('127.0.0.1',7777)))"), "111\n");
  EXPECT_EQ(Py("print(socket.socket(1).connect_ex(chr(0)+'other'))"), "111\n");
  EXPECT_TRUE(Terminate(*client_, other).ok());
}

TEST_F(IsolationTest, RootIsReadOnlyAndWritablePathsAreWritable) {
  for (const char* path : {"/x", "/usr/x", "/etc/x", "/dev/x", "/run/x", "/var/x", "/home/x"}) {
    EXPECT_NE(box_.Sh(std::string("touch ") + path).code, 0) << path;
    EXPECT_NE(box_.Guest(std::string("touch ") + path).code, 0) << path;
  }
  EXPECT_NE(box_.Sh("echo x >> /etc/passwd").code, 0);
  for (const char* path : {"/workspace", "/home/user", "/tmp", "/var/tmp", "/dev/shm"}) {
    EXPECT_EQ(Sh(std::string("cd ") + path +
                 " && mkdir -p d/e && echo hi > d/e/f && mv d/e/f g && cat g && rm -r d g"),
              "hi\n")
        << path;
  }
  EXPECT_THAT(Sh("ls -A /dev/.disk"), HasSubstr("denied"));
  EXPECT_EQ(Sh("whoami; echo ~; id"),
            "user\n/home/user\nuid=1000(user) gid=1000(user) groups=1000(user)\n");
}

TEST_F(IsolationTest, IdsAreMappedAndOwnersRight) {
  EXPECT_EQ(Sh("cat /proc/self/uid_map | tr -s ' '"),
            " 0 " + std::to_string(box_.plan.uid_map[0].outside) + " 65536\n");
  EXPECT_EQ(Sh("stat -c '%u:%g %a' /workspace /home/user /tmp"),
            "1000:1000 755\n1000:1000 755\n0:0 1777\n");
  struct stat info{};
  ASSERT_EQ(stat(("/proc/" + std::to_string(box_.pid) + "/task").c_str(), &info), 0);
  EXPECT_THAT(box_.Guest("id -u; grep CapEff /proc/self/status").text,
              "0\nCapEff:\t00000000000000e0\n");
}

TEST_F(IsolationTest, CommonProgramsWork) {
  EXPECT_EQ(Sh("bash -c 'a=(1 2 3); echo ${#a[@]} | cat'"), "3\n");
  EXPECT_EQ(Sh("/usr/bin/python3 -c 'import subprocess,threading,tempfile,json; "
               "t=threading.Thread(target=lambda: 1); t.start(); t.join(); "
               "print(subprocess.check_output([\"echo\",\"ok\"]).decode(),end=\"\")'"),
            "ok\n");
  EXPECT_EQ(Sh("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q "
               "--allow-empty -m x && git log --format=%s"),
            "x\n");
  EXPECT_EQ(Sh("echo 'int main(){return 42;}' > a.c && gcc -O1 a.c -o a && ./a; echo $?"), "42\n");
  if (access("/usr/bin/node", X_OK) == 0) {
    EXPECT_EQ(Sh("node -e 'require(\"fs\").writeFileSync(\"n\",\"7\"); "
                 "console.log(require(\"child_process\").execSync(\"cat n\").toString())'"),
              "7\n");
  }
  EXPECT_EQ(Sh("find /usr/bin -name 'l[s]' | xargs ls"), "/usr/bin/ls\n");
  EXPECT_EQ(Sh("tar cf t.tar a.c && tar tf t.tar && date -d @0 +%Y"), "a.c\n1970\n");
  EXPECT_EQ(Sh("awk 'BEGIN{print 1+1}'; sort --version | head -1 | cut -c1-4"), "2\nsort\n");
}

}  // namespace
}  // namespace caisson::launcher::testing
