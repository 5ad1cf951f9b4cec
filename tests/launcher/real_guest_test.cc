// The real guest in a sandbox that the launcher made: the two keep to the same start-up contract,
// and the outer filter, the capabilities and the delegated cgroup are what the guest needs.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/syscall.h"
#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RealGuestTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    guest_program_ = std::string(getenv("CAISSON_BIN_DIR")) + "/caisson-guest";
  }
  // One request; the whole reply, headers and all.
  static std::string Http(const Box& box, const std::string& method, const std::string& path,
                          const std::string& body) {
    UniqueFd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, box.socket_path.c_str(), box.socket_path.size() + 1);
    if (connect(peer.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) return "";
    timeval patience{20, 0};
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_TRUE(WriteAll(peer.get(), method + " " + path +
                                         " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                                         "authorization: Bearer token\r\ncontent-length: " +
                                         std::to_string(body.size()) + "\r\n\r\n" + body)
                    .has_value());
    return ReadAll(peer.get(), 4 << 20).value_or("no reply");
  }
  static std::string Exec(const Box& box, const std::string& command) {
    return Http(box, "POST", "/v1/execs", "{\"command\": \"" + command + "\"}");
  }
};

TEST_F(RealGuestTest, CommandsFilesAndLimits) {
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  spec.resources.memory_bytes = 64 << 20;
  Box box = Prepare(spec);
  Answer answer = Create(client, box, kRealGuestConfig);
  ASSERT_TRUE(answer.ok()) << answer.ToString();
  std::string hello = Http(box, "GET", "/v1/hello", "");
  EXPECT_THAT(hello, HasSubstr("\"uid_separation\""));
  EXPECT_THAT(hello, HasSubstr("exec.cgroup2"));
  EXPECT_THAT(hello, HasSubstr("exec.oom_evidence"));
  EXPECT_THAT(hello, HasSubstr("\"files\""));
  EXPECT_THAT(Exec(box, "echo $(id -u) $(pwd)"), HasSubstr("1000 /workspace\n"));
  std::string ended = Exec(box, "echo one > a; cat a; exit 3");
  EXPECT_THAT(ended, HasSubstr("one\n"));
  EXPECT_THAT(ended, HasSubstr("\"code\":3"));
  EXPECT_THAT(Exec(box, "grep Seccomp_filters /proc/self/status"), HasSubstr("\t2\n"));
  EXPECT_THAT(Exec(box, "unshare -Ur true"), HasSubstr("not permitted"));
  EXPECT_THAT(Http(box, "GET", "/v1/files/content?path=/workspace/a", ""), HasSubstr("one\n"));
  EXPECT_THAT(Http(box, "PUT", "/v1/files/content?path=/workspace/b", "two"),
              HasSubstr("HTTP/1.1 20"));
  EXPECT_THAT(Exec(box, "echo $(cat b) $(stat -c %u:%g b)"), HasSubstr("two 1000:1000\n"));
  EXPECT_THAT(Http(box, "PUT", "/v1/files/content?path=/etc/b", "two"), HasSubstr("HTTP/1.1 4"));
  // The kernel's evidence reaches the guest.
  EXPECT_THAT(Exec(box, "/usr/bin/python3 -c 'a=bytearray(400<<20)'"), HasSubstr("\"oom\""));
  EXPECT_THAT(Exec(box, "echo alive"), HasSubstr("alive\n"));
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

// The guest needs nothing of the root it is in: no shell, no libc, no program at all.
struct RootKind {
  const char* name;
  std::function<bool(const std::string& image)> fill;  // false: this host has not what it needs
  std::string argv;                                    // of a program that prints `says`
  std::string says;
  bool shell = false;
};

void PrintTo(const RootKind& kind, std::ostream* out) { *out << kind.name; }

bool Busybox(const std::string& image, std::initializer_list<const char*> names) {
  if (access("/bin/busybox", X_OK) != 0) return false;
  fs::create_directories(image + "/bin");
  for (const char* name : names) fs::copy_file("/bin/busybox", image + "/bin/" + name);
  return true;
}

bool Musl(const std::string& image) {
#ifdef MUSL_GREETER
  fs::create_directories(image + "/lib");
  fs::create_directories(image + "/bin");
  fs::copy_file(MUSL_LIBC, image + "/lib/" MUSL_LOADER);
  fs::copy_file(MUSL_GREETER, image + "/bin/greeter");
  return Busybox(image, {"sh"});
#else
  (void)image;
  return false;
#endif
}

class EveryRoot : public RealGuestTest, public ::testing::WithParamInterface<RootKind> {};

TEST_P(EveryRoot, CommandsFilesAndSearch) {
  const RootKind& kind = GetParam();
  std::string image = state_dir_ + "/image";
  fs::create_directories(image);
  if (!kind.fill(image)) GTEST_SKIP() << "this host has not what the root needs";
  before_ = Census();
  Client client(state_dir_, "--ephemeral");
  sandbox::SandboxSpec spec = Spec();
  if (!fs::is_empty(image)) spec.rootfs = image;
  Box box = Prepare(spec);
  Answer answer = Create(client, box, kRealGuestConfig);
  ASSERT_TRUE(answer.ok()) << answer.ToString();
  if (!kind.argv.empty()) {
    std::string ran = Http(box, "POST", "/v1/execs", "{\"argv\": " + kind.argv + "}");
    EXPECT_THAT(ran, HasSubstr(kind.says));
    EXPECT_THAT(ran, HasSubstr("\"code\":0"));
  }
  std::string shell = Exec(box, "echo one && exit 3");
  EXPECT_THAT(shell, HasSubstr(kind.shell ? "\"code\":3" : "HTTP/1.1 4"));
  if (!kind.shell) EXPECT_THAT(shell, HasSubstr("\"command_not_found\""));

  auto ok = [&](const char* method, const std::string& path, const std::string& body,
                const std::string& says) {
    std::string reply = Http(box, method, path, body);
    EXPECT_THAT(reply, HasSubstr("HTTP/1.1 20")) << method << " " << path;
    EXPECT_THAT(reply, HasSubstr(says)) << method << " " << path;
  };
  ok("PUT", "/v1/files/content?path=d/a.txt&parents=1", "one\ntwo\n", "\"created\":true");
  ok("GET", "/v1/files/content?path=d/a.txt", "", "two\n");
  ok("GET", "/v1/files/lines?path=d/a.txt&offset=1", "", "two");
  ok("GET", "/v1/files/stat?path=/workspace/d&media_type=1", "", "\"directory\"");
  ok("GET", "/v1/files/list?path=/", "", "workspace");
  ok("POST", "/v1/files/edit", R"({"path":"d/a.txt","old":"two","new":"2"})", "\"count\":1");
  ok("POST", "/v1/files/mkdir", R"({"path":"e"})", "\"e\"");
  ok("POST", "/v1/files/copy", R"({"from":"d","to":"f","recursive":true})", "\"files\":1");
  ok("POST", "/v1/files/move", R"({"from":"f","to":"g"})", "\"g\"");
  ok("GET", "/v1/files/archive?path=d", "", "a.txt");
  ok("POST", "/v1/files/download", R"({"paths":["d/a.txt"]})", "one\n2\n");
  ok("POST", "/v1/search/glob", R"({"path":"/workspace","pattern":"*.txt"})", "d/a.txt");
  ok("POST", "/v1/search/grep", R"({"path":".","pattern":"^2$","regex":true})", "g/a.txt");
  ok("POST", "/v1/files/remove", R"({"path":"g","recursive":true})", "\"removed\":true");
  EXPECT_THAT(Http(box, "PUT", "/v1/files/content?path=/bin/x", "x"), HasSubstr("HTTP/1.1 4"));
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

INSTANTIATE_TEST_SUITE_P(
    Roots, EveryRoot,
    ::testing::Values(
        RootKind{"host", [](const std::string&) { return true; }, R"(["id","-un"])", "user\n",
                 true},
        RootKind{"busybox", [](const std::string& image) { return Busybox(image, {"sh", "id"}); },
                 R"(["/bin/id","-un"])", "user\n", true},
        RootKind{"musl", Musl, R"(["/bin/greeter"])", "musl greets user\n", true},
        RootKind{"no_shell", [](const std::string& image) { return Busybox(image, {"id"}); },
                 R"(["/bin/id","-un"])", "user\n"},
        RootKind{"no_program",
                 [](const std::string& image) { return fs::create_directories(image + "/data"); },
                 "", ""}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace caisson::launcher::testing
