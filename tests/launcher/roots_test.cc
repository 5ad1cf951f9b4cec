// Other roots than the host's /usr: an image directory, and a workspace of the host.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "fixture.h"

namespace caisson::launcher::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Of a directory: every path with its mode, size and link text.
std::vector<std::string> Listing(const std::string& root) {
  std::vector<std::string> lines;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    struct stat info{};
    lstat(entry.path().c_str(), &info);
    lines.push_back(entry.path().string() + " " + std::to_string(info.st_mode) + " " +
                    std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_nsec));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

class RootsTest : public LauncherTest {
 protected:
  void SetUp() override {
    LauncherTest::SetUp();
    if (IsSkipped()) return;
    if (access("/bin/busybox", X_OK) != 0) GTEST_SKIP() << "needs busybox";
    image_ = state_dir_ + "/image";
    fs::create_directories(image_ + "/bin");
    fs::copy_file("/bin/busybox", image_ + "/bin/busybox");
    for (const char* name :
         {"sh", "echo", "ls", "cat", "id", "touch", "mkdir", "grep", "hostname"}) {
      fs::create_symlink("busybox", image_ + "/bin/" + name);
    }
    spec_ = Spec();
    spec_.rootfs = image_;
  }
  std::string image_;
  sandbox::SandboxSpec spec_;
};

TEST_F(RootsTest, BareBusyboxRootWithOnlyBin) {
  before_ = Census();
  std::vector<std::string> image_before = Listing(image_);
  Client client(state_dir_, "--ephemeral");
  Box box = Start(client, spec_);
  EXPECT_EQ(box.Sh("id -un; echo hi > /workspace/a && cat /workspace/a").text, "user\nhi\n");
  EXPECT_EQ(box.Sh("ls /bin | grep -c .").text, "10\n");
  EXPECT_THAT(box.Sh("ls /").text, HasSubstr("proc"));
  EXPECT_NE(box.Sh("touch /bin/x").code, 0);
  EXPECT_NE(box.Guest("touch /bin/x").code, 0);
  EXPECT_NE(box.Guest("touch /x").code, 0);
  EXPECT_TRUE(Terminate(client, box).ok());
  EXPECT_EQ(Listing(image_), image_before);
  ExpectCensusAsBefore();
}

TEST_F(RootsTest, OwnDirectoriesAmongThoseOfTheImage) {
  fs::create_directories(image_ + "/home/someone");
  fs::create_directories(image_ + "/var/lib/x");
  fs::create_directories(image_ + "/etc/conf.d");
  fs::create_directories(image_ + "/tmp");
  std::ofstream(image_ + "/home/someone/f") << "of the image";
  std::ofstream(image_ + "/etc/passwd") << "daemon:x:1:1::/:/bin/sh\n";
  std::ofstream(image_ + "/etc/resolv.conf") << "nameserver 10.0.0.1\n";
  std::ofstream(image_ + "/tmp/leftover") << "x";
  fs::create_symlink("/etc/conf.d", image_ + "/conf");
  // Links of a hostile image: they must stay inside.
  fs::create_symlink("/etc/shadow", image_ + "/etc/shadow");
  fs::create_symlink("../../../../../etc/hostname", image_ + "/etc/group");
  before_ = Census();
  Client client(state_dir_, "--ephemeral");
  Box box = Start(client, spec_);
  EXPECT_EQ(box.Sh("cat /home/someone/f; echo x > /home/user/g; ls /home").text,
            "of the imagesomeone\nuser\n");
  EXPECT_EQ(box.Sh("ls /var; ls /var/lib").text, "lib\ntmp\nx\n");
  EXPECT_THAT(box.Sh("cat /etc/passwd").text, HasSubstr("daemon:x:1"));
  EXPECT_THAT(box.Sh("cat /etc/passwd").text, HasSubstr("user:x:1000"));
  EXPECT_EQ(box.Sh("cat /etc/resolv.conf; ls /tmp").text, "");
  EXPECT_THAT(box.Sh("cat /etc/shadow").text, Not(HasSubstr("root")));
  EXPECT_NE(box.Sh("touch /home/someone/new").code, 0);
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(RootsTest, DirectoryAsTheRootItself) {
  // As a plan may ask for directly; the mount points are there.
  for (const char* name : {"dev", "proc", "tmp", "workspace"})
    fs::create_directories(image_ + "/" + name);
  before_ = Census();
  Client client(state_dir_, "--ephemeral");
  Box box = Prepare(Spec());
  box.plan.root_dir = image_;
  std::erase_if(box.plan.mounts, [](const MountStep& step) {
    bool wanted = step.target.empty() || step.target.starts_with("dev") ||
                  step.target.starts_with("proc") || step.target == "tmp" ||
                  step.target == "workspace";
    return !wanted;
  });
  std::erase_if(box.plan.landlock_rules, [](const LandlockRule& rule) {
    return rule.path == "/home/user" || rule.path == "/var/tmp";
  });
  Answer answer = Create(client, box);
  ASSERT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_EQ(box.Sh("echo hi > /workspace/a && cat /workspace/a").text, "hi\n");
  EXPECT_NE(box.Guest("touch /bin/x").code, 0);
  EXPECT_TRUE(Terminate(client, box).ok());
  ExpectCensusAsBefore();
}

TEST_F(RootsTest, TargetsAreResolvedInsideAHostileRoot) {
  for (const char* name : {"dev", "proc", "tmp"}) fs::create_directories(image_ + "/" + name);
  std::string outside = state_dir_ + "/outside";
  fs::create_directories(outside);
  fs::create_symlink(outside, image_ + "/workspace");
  before_ = Census();
  Client client(state_dir_, "--ephemeral");
  Box box = Prepare(Spec());
  box.plan.root_dir = image_;
  box.plan.mounts = {MountStep{}};
  box.plan.mounts[0].op = MountStep::Op::kTmpfs;
  box.plan.mounts[0].target = "workspace/deep";
  // "outside" does not exist in the image: it is looked for there, and nowhere else.
  Answer answer = Create(client, box);
  EXPECT_FALSE(answer.ok());
  EXPECT_EQ(answer.reply.step, LaunchStep::kMounts) << answer.ToString();
  EXPECT_TRUE(fs::is_empty(outside));
  unlink(box.socket_path.c_str());
  ExpectCensusAsBefore();
}

TEST_F(RootsTest, WorkspaceOfTheHost) {
  std::string workspace = state_dir_ + "/workspace";
  fs::create_directories(workspace);
  sandbox::SandboxSpec spec = Spec();
  spec.requirements.disk_limit = false;
  spec.workspace = sandbox::WorkspaceMode::kSession;
  Client client(state_dir_, "--ephemeral");
  Box box = Prepare(spec, workspace);
  uint32_t owner = box.plan.uid_map[0].outside + 1000;
  ASSERT_EQ(chown(workspace.c_str(), owner, owner), 0);
  Answer answer = Create(client, box);
  ASSERT_TRUE(answer.ok()) << answer.ToString();
  EXPECT_EQ(
      box.Sh("echo hi > f; mkdir d; mv f d/; mknod x p; cp /usr/bin/id s; chmod 4755 s; ./s -u")
          .text,
      "1000\n");
  EXPECT_TRUE(Terminate(client, box).ok());
  EXPECT_TRUE(fs::exists(workspace + "/d/f"));
  Request request;
  request.op = Op::kRemoveTree;
  EXPECT_TRUE(client.Call(request, "workspace").ok());
  EXPECT_FALSE(fs::exists(workspace));
}

}  // namespace
}  // namespace caisson::launcher::testing
