// kRemoveTree: hostile trees below the state directory.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

namespace fs = std::filesystem;

class RemoveTreeTest : public LauncherTest {
 protected:
  Answer Remove(const std::string& path) {
    Client client(state_dir_, "--keep");
    Request request;
    request.op = Op::kRemoveTree;
    request.deadline_ms = 60'000;
    return client.Call(request, path);
  }
  bool Exists(const std::string& path) {
    return fs::exists(fs::symlink_status(state_dir_ + "/" + path));
  }
};

TEST_F(RemoveTreeTest, RemovesFilesLinksAndClosedDirectories) {
  fs::create_directories(state_dir_ + "/w/a/b/c");
  fs::create_directories(state_dir_ + "/w/closed/in");
  std::ofstream(state_dir_ + "/w/a/b/c/f") << "x";
  std::ofstream(state_dir_ + "/keep") << "x";
  fs::create_symlink("/etc", state_dir_ + "/w/a/link");
  fs::create_symlink(state_dir_ + "/keep", state_dir_ + "/w/l");
  mkfifo((state_dir_ + "/w/fifo").c_str(), 0600);
  chmod((state_dir_ + "/w/closed").c_str(), 0);
  chmod((state_dir_ + "/w/a/b").c_str(), 0);
  Answer answer = Remove("w");
  EXPECT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_FALSE(Exists("w"));
  EXPECT_TRUE(Exists("keep"));
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  EXPECT_TRUE(Remove("w").ok());  // missing is fine
  EXPECT_TRUE(Remove("no/such/parent").ok());
  EXPECT_TRUE(Remove("keep").ok());  // a file
  EXPECT_FALSE(Exists("keep"));
}

TEST_F(RemoveTreeTest, NeverLeavesTheStateDirectory) {
  fs::create_directories(state_dir_ + "/outside/victim");
  fs::create_directories(state_dir_ + "/inside");
  fs::create_symlink("../outside", state_dir_ + "/inside/way");
  fs::create_symlink("/etc", state_dir_ + "/etc");
  for (const char* path :
       {"", ".", "..", "/etc", "inside/way/victim", "../x", "inside/..", "etc/passwd"}) {
    EXPECT_FALSE(Remove(path).ok()) << path;
  }
  EXPECT_TRUE(Exists("outside/victim"));
  // The link itself may go.
  EXPECT_TRUE(Remove("inside/way").ok());
  EXPECT_TRUE(Exists("outside/victim"));
}

TEST_F(RemoveTreeTest, DeepAndWideTrees) {
  int dir = open(state_dir_.c_str(), O_RDONLY | O_DIRECTORY);
  for (int depth = 0; depth < 3000; depth++) {
    ASSERT_EQ(mkdirat(dir, "d", 0700), 0);
    int next = openat(dir, "d", O_RDONLY | O_DIRECTORY);
    close(dir);
    dir = next;
    if (depth % 100 == 0) close(openat(dir, "f", O_CREAT | O_WRONLY, 0600));
  }
  close(dir);
  fs::create_directories(state_dir_ + "/wide");
  for (int i = 0; i < 20000; i++) {
    close(open((state_dir_ + "/wide/" + std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
  }
  Answer deep = Remove("d");
  EXPECT_TRUE(deep.ok()) << deep.ToString();
  EXPECT_TRUE(Remove("wide").ok());
  EXPECT_FALSE(Exists("d") || Exists("wide"));
}

TEST_F(RemoveTreeTest, StopsAtAnotherFileSystem) {
  fs::create_directories(state_dir_ + "/w/mnt");
  ASSERT_EQ(mount("tmpfs", (state_dir_ + "/w/mnt").c_str(), "tmpfs", 0, ""), 0);
  std::ofstream(state_dir_ + "/w/mnt/precious") << "x";
  Answer answer = Remove("w");
  EXPECT_FALSE(answer.ok());
  EXPECT_TRUE(Exists("w/mnt/precious"));
  ASSERT_EQ(umount((state_dir_ + "/w/mnt").c_str()), 0);
  EXPECT_TRUE(Remove("w").ok());
}

}  // namespace
}  // namespace caisson::launcher::testing
