// Trees as archives, out and in, against tar(1) and against archives that nobody means well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "fixture.h"
#include "guest/tar.h"

namespace caisson::guest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace json = boost::json;

std::string Entry(TarEntry entry, const std::string& data = "") {
  entry.size = static_cast<int64_t>(data.size());
  return TarHeader(entry) + data + TarPadding(entry.size);
}
std::string File(const std::string& path, const std::string& data, uint32_t mode = 0644) {
  return Entry({path, TarEntry::Type::kFile, "", 0, mode, 1'000'000'000}, data);
}
std::string Link(TarEntry::Type type, const std::string& path, const std::string& target) {
  return Entry({path, type, target, 0, 0777, 0});
}
// An entry of a kind that the writer does not know: its letter is set, and the checksum with it.
std::string Special(const std::string& path, char letter) {
  std::string header = File(path, "");
  unsigned sum = 0;
  sscanf(header.c_str() + 148, "%6o", &sum);
  snprintf(header.data() + 148, 7, "%06o", sum + static_cast<unsigned>(letter - header[156]));
  header[156] = letter;
  return header;
}
constexpr auto kSymlink = TarEntry::Type::kSymlink;
constexpr auto kHardLink = TarEntry::Type::kHardLink;

class GuestArchive : public GuestTest {
 protected:
  void Prepare(const std::string& work) override {
    ::mkdir((work + "/of-root").c_str(), 0755);
    std::ofstream(work + "/of-root/secret") << "secret";
    ::chmod((work + "/of-root/secret").c_str(), 0600);
  }

  HttpResponse Get(const std::string& query) {
    return guest_->Call("GET", "/v1/files/archive?path=" + query);
  }
  HttpResponse Put(const std::string& query, const std::string& body) {
    return guest_->Call("PUT", "/v1/files/archive?path=" + query, body);
  }
  void Store(const std::string& path, const std::string& bytes) {
    ASSERT_EQ(guest_->Call("PUT", "/v1/files/content?path=" + path, bytes).status, 200);
  }
  std::string Load(const std::string& path) {
    return guest_->Call("GET", "/v1/files/content?path=" + path).body;
  }
  // "path code" of each failure.
  static std::vector<std::string> Failures(const HttpResponse& response) {
    std::vector<std::string> texts;
    for (const json::value& failure : response.Json().at("failures").as_array()) {
      texts.push_back(std::string(failure.at("path").as_string()) + " " +
                      std::string(failure.at("code").as_string()));
    }
    return texts;
  }
};

// A tree with everything that a tree may have, packed by one side and unpacked by the other.
constexpr const char* kMakeTree =
    "mkdir -p t/a/deep t/empty; printf one > t/one; printf '' > t/nothing; chmod 751 t/one;"
    "head -c 3000000 /dev/urandom > t/a/large; ln -s ../one t/a/link; chmod 1777 t/empty;"
    "n=$(printf 'x%.0s' $(seq 120)); mkdir -p t/$n/$n; echo long > t/$n/$n/$n;"
    "ln -s $n/$n/$n t/longlink; touch -d @1234567890 t/one; printf sp > 't/with space'";
constexpr const char* kDescribe =
    " && find . | sort | while read f; do stat -c '%n %F %a' \"$f\"; readlink \"$f\"; done;"
    "find . -type f | sort | xargs -d '\\n' sha256sum; stat -c %Y one";

TEST_F(GuestArchive, PacksWhatTarUnpacks) {
  Sh(kMakeTree);
  HttpResponse archive = Get("t");
  ASSERT_EQ(archive.status, 200) << archive.body;
  EXPECT_EQ(archive.headers.at("content-type"), "application/x-tar");
  Store("t.tar", archive.body);
  EXPECT_EQ(Sh("mkdir u; tar -xpf t.tar -C u 2>&1"), "");
  std::string described = Sh(std::string("cd t") + kDescribe);
  EXPECT_THAT(described, HasSubstr("1234567890"));
  EXPECT_EQ(Sh(std::string("cd u") + kDescribe), described);
  // The same tree is the same archive.
  EXPECT_TRUE(Get("t").body == archive.body);
  // A single file.
  Store("one.tar", Get("t/one").body);
  EXPECT_EQ(Sh("tar -tvf one.tar | awk '{print $1, $6}'"), "-rwxr-x--x one\n");
}

TEST_F(GuestArchive, UnpacksWhatTarPacks) {
  Sh(kMakeTree);
  for (const char* format : {"gnu", "posix", "ustar"}) {
    // ustar has no room for the long names.
    if (format == std::string("ustar")) Sh("rm -r t/longlink t/xx*");
    Sh(std::string("rm -rf v; mkdir v; tar --format=") + format + " -cf v.tar -C t .");
    HttpResponse answer = Put("v", Load("v.tar"));
    ASSERT_EQ(answer.status, 200) << format << answer.body;
    EXPECT_EQ(answer.Json().at("failed").as_int64(), 0) << answer.body;
    EXPECT_EQ(Sh(std::string("chmod 755 v; cd v") + kDescribe),
              Sh(std::string("chmod 755 t; cd t") + kDescribe))
        << format;
  }
  // Over what is there; links replace, directories stay.
  HttpResponse again = Put("v", Load("v.tar"));
  EXPECT_EQ(again.Json().at("failed").as_int64(), 0) << again.body;
  again = Put("v&create_only=1", Load("v.tar"));
  EXPECT_EQ(again.Json().at("files").as_int64(), 0);
  EXPECT_GT(again.Json().at("failed").as_int64(), 4);
}

TEST_F(GuestArchive, HardLinksComeAndGoAsFiles) {
  Sh("mkdir h; printf same > h/a; ln h/a h/b; tar -cf h.tar -C h .; mkdir i");
  HttpResponse answer = Put("i", Load("h.tar"));
  EXPECT_EQ(answer.Json().at("links").as_int64(), 1) << answer.body;
  EXPECT_EQ(Sh("cat i/a i/b; stat -c %h i/a"), "samesame2\n");
  Store("j.tar", Get("i").body);
  EXPECT_EQ(Sh("mkdir j; tar -xf j.tar -C j; cat j/a j/b; stat -c %h j/a"), "samesame1\n");
}

// Each alone; what comes behind it is unpacked all the same.
TEST_F(GuestArchive, Case36_NothingLeavesTheDirectory) {
  Sh("mkdir -p in/real; echo outside > outside; ln -s .. in/up; ln -s /tmp in/tmp");
  std::string archive =
      File("../outside", "x") + File("/tmp/absolute", "x") + File("a/../../outside", "x") +
      File("up/outside", "x") + File("tmp/evil", "x") + Link(kSymlink, "l1", "/etc/passwd") +
      Link(kSymlink, "l2", "../outside") + Link(kSymlink, "real/l3", "../../outside") +
      Link(kSymlink, "l4", "a/../../outside") + Link(kSymlink, "l5", "") +
      Link(kHardLink, "h1", "../outside") + Link(kHardLink, "h2", "/etc/passwd") +
      Link(kHardLink, "h3", "up/outside") + Link(kHardLink, "h4", "real") +
      // A link of the archive's own, and then through it.
      Link(kSymlink, "ok", "real/down") + File("ok/x", "x") + Link(kSymlink, "dir", "real") +
      File("dir/through", "x") + Special("fifo", '6') + Special("disk", '4') +
      Special("null", '3') + File("", "x") + File(std::string(300, 'n'), "x") +
      File(std::string("n\0l", 3), "x") + File("last", "last") + TarEnd();
  HttpResponse answer = Put("in", archive);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(
      Failures(answer),
      ElementsAre(
          "../outside invalid_path", "/tmp/absolute invalid_path", "a/../../outside invalid_path",
          "up/outside symlink_loop", "tmp/evil symlink_loop", "l1 outside_root", "l2 outside_root",
          "real/l3 outside_root", "l4 outside_root", "l5 outside_root", "h1 outside_root",
          "h2 outside_root", "h3 symlink_loop", "h4 not_a_regular_file", "ok/x symlink_loop",
          "dir/through symlink_loop", "fifo not_a_regular_file", "disk not_a_regular_file",
          "null not_a_regular_file", " invalid_path", std::string(300, 'n') + " invalid_path"));
  EXPECT_EQ(Sh("cat outside in/last; ls in in/real; ls /tmp | grep -c -e evil -e absolute"),
            "outside\nlastin:\ndir\nlast\nn\nok\nreal\ntmp\nup\n\nin/real:\n0\n");
}

TEST_F(GuestArchive, OnlyWhatTheUserMay) {
  HttpResponse answer = Put("of-root", File("x", "x") + File("secret", "mine") + TarEnd());
  EXPECT_THAT(Failures(answer), ElementsAre("x file_access_denied", "secret file_access_denied"));
  // Set-id bits are never taken over.
  EXPECT_EQ(Put(".", File("suid", "x", 06755) + TarEnd()).status, 200);
  EXPECT_EQ(Sh("stat -c '%a %u' suid; rm suid"), "755 1000\n");

  HttpResponse refused = Get(".");
  EXPECT_EQ(refused.Code(), "file_access_denied");
  EXPECT_THAT(std::string(refused.Json().at("message").as_string()), HasSubstr("of-root/secret"));
  Sh("echo seen > seen; mkfifo fifo");
  Store("rest.tar", Get(".&skip_unreadable=1").body);
  EXPECT_EQ(Sh("tar -tf rest.tar"), "of-root/\nseen\n");
  EXPECT_EQ(Get("missing").Code(), "file_not_found");
  EXPECT_EQ(Get("fifo").Code(), "not_a_regular_file");
  EXPECT_EQ(Put("missing", TarEnd()).Code(), "file_not_found");
  EXPECT_EQ(Put("seen", TarEnd()).Code(), "not_a_directory");
  EXPECT_EQ(Put("..&root=work_dir", TarEnd()).Code(), "outside_root");
}

TEST_F(GuestArchive, Case36_BadArchivesEndWhereTheyAreBad) {
  std::string good = File("good", "good");
  std::string bad_sum = File("bad", "bad");
  bad_sum[0] = 'X';
  std::string huge = File("huge", "");
  // A size of 2^63 - 1, said in base 256.
  std::string size("\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
  huge.replace(124, 12, size);
  for (const std::string& bad :
       {std::string("x"), std::string(), good, good + bad_sum + TarEnd(),
        good + good.substr(0, 600), good + std::string(512, 'a'), good + huge}) {
    Sh("rm -rf b; mkdir b");
    HttpResponse answer = Put("b", bad);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.Code(), "invalid_argument");
    EXPECT_EQ(Sh("cat b/good 2>/dev/null"), bad.starts_with("good") ? "good" : "");
  }
  // What comes behind the end is nothing.
  EXPECT_EQ(Put("b", good + TarEnd() + std::string(500'000, 'z')).status, 200);

  std::string many;
  for (int i = 0; i < 10'001; i++) many += File("good", "");
  EXPECT_EQ(Put("b", many + TarEnd()).Code(), "too_many_files");
  EXPECT_EQ(Put("b&max_entries=1", good + good + TarEnd()).Code(), "too_many_files");
  EXPECT_EQ(Put("b&max_total_bytes=7", good + good + TarEnd()).Code(), "file_too_large");
  EXPECT_EQ(Put("b&max_total_bytes=8", good + good + TarEnd()).status, 200);
  EXPECT_EQ(Put("b&max_entries=1000001", TarEnd()).Code(), "invalid_argument");
}

TEST_F(GuestArchive, LateAndLeftOnesDoNoHarm) {
  std::string archive = File("first", "first") + File("second", std::string(200'000, 's'));
  for (bool leaves : {false, true}) {
    Sh("rm -rf l; mkdir l");
    HttpStream stream(guest_->socket_path());
    stream.SendRequest(
        "PUT", "/v1/files/archive?path=l", "",
        {{"Content-Length", "1000000"}, {"Caisson-Deadline-Ms", leaves ? "60000" : "300"}});
    stream.Send(archive.substr(0, 100'000));
    ASSERT_TRUE(WaitFor([&] { return Sh("cat l/first 2>/dev/null") == "first"; }));
    if (leaves) {
      stream.Close();
    } else {
      HttpResponse answer = stream.ReadResponse();
      EXPECT_EQ(answer.Code(), "deadline_exceeded");
      EXPECT_THAT(answer.body, HasSubstr("1 files"));
    }
    EXPECT_TRUE(WaitFor([&] { return Sh("ls -A l") == "first\n"; }));
  }
  // A reader that leaves in the middle takes the worker with it.
  Sh("head -c 50000000 /dev/zero > l/big");
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("GET", "/v1/files/archive?path=l");
  EXPECT_EQ(stream.ReadHead().status, 200);
  (void)stream.ReadBodySome();
  stream.Close();
  EXPECT_TRUE(WaitFor([&] { return guest_->Children("caisson-work").empty(); }));
}

// A gigabyte through a small guest.
TEST_F(GuestArchive, MemoryIsBounded) {
  if (!kMeasures) GTEST_SKIP() << "sanitizers use memory of their own";
  Sh("mkdir big; truncate -s 300M big/sparse");
  int64_t before = guest_->RssKiB();
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("GET", "/v1/files/archive?path=big");
  stream.ReadHead();
  size_t total = 0;
  while (!stream.body_over()) total += stream.ReadBodySome().size();
  EXPECT_GT(total, 300u << 20);
  EXPECT_LT(guest_->RssKiB() - before, 2048);
}

}  // namespace
}  // namespace caisson::guest
