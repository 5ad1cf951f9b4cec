// The real guest in a sandbox that the launcher made: the two keep to the same start-up contract,
// and the outer filter, the capabilities and the delegated cgroup are what the guest needs.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/syscall.h"
#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

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

}  // namespace
}  // namespace caisson::launcher::testing
