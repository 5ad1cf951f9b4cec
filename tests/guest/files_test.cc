// Files: content, edits, links, identities. Case numbers are those of the reported faults.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "fixture.h"

namespace caisson::guest {
namespace {

using testing::HasSubstr;
namespace json = boost::json;

class GuestFiles : public GuestTest {
 protected:
  void Prepare(const std::string& work) override {
    // Root's own, as the host would leave it.
    std::ofstream(work + "/root-only") << "secret";
    ::chmod((work + "/root-only").c_str(), 0600);
    std::ofstream(work + "/root-readable") << "shown";
    ::chmod((work + "/root-readable").c_str(), 0644);
    std::ofstream(work + "/root-writable") << "old";
    ::chmod((work + "/root-writable").c_str(), 0666);
    ::mkdir((work + "/root-dir").c_str(), 0755);
    std::ofstream(work + "/root-dir/x") << "x";
  }

  HttpResponse Get(const std::string& path, const std::string& more = "",
                   const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    return guest_->Call("GET", "/v1/files/content?path=" + Encode(path) + more, {}, headers);
  }
  HttpResponse Put(const std::string& path, std::string_view body, const std::string& more = "") {
    return guest_->Call("PUT", "/v1/files/content?path=" + Encode(path) + more, body);
  }
  HttpResponse Post(const std::string& call, const json::object& body) {
    return guest_->Call("POST", "/v1/files/" + call, json::serialize(body));
  }
  HttpResponse Edit(json::object body) { return Post("edit", body); }
  HttpResponse Lines(const std::string& path, const std::string& more = "") {
    return guest_->Call("GET", "/v1/files/lines?path=" + Encode(path) + more);
  }
  json::value Meta(const HttpResponse& response) {
    return json::parse(response.headers.at("caisson-meta"));
  }
  json::value Stat(const std::string& path, const std::string& more = "") {
    return guest_->Call("GET", "/v1/files/stat?path=" + Encode(path) + more).Json();
  }
  std::vector<std::string> NoLeftovers() {
    std::vector<std::string> names;
    auto list = guest_->Call("GET", "/v1/files/list?path=.").Json();
    for (const auto& entry : list.at("entries").as_array()) {
      std::string name(entry.at("name").as_string());
      if (name.starts_with(".caisson-")) names.push_back(name);
    }
    return names;
  }
};

TEST_F(GuestFiles, RoundTrip) {
  std::string data;
  for (int i = 0; i < 3'000'000; i++) data += static_cast<char>(i * 7 + i / 251);
  auto put = Put("a/b/c", data, "&parents=1&mode=0640");
  ASSERT_EQ(put.status, 200) << put.body;
  EXPECT_TRUE(put.Json().at("created").as_bool());
  auto got = Get("a/b/c", "&hash=1");
  EXPECT_TRUE(got.body == data);
  EXPECT_EQ(Meta(got).at("sha256"), put.Json().at("sha256"));
  EXPECT_EQ(Meta(got).at("mode"), "0640");
  EXPECT_EQ(Stat("a/b/c").at("uid").as_int64(), 1000);
  EXPECT_EQ(Put("a/b/c", "x", "&create_only=1").Code(), "file_exists");
  EXPECT_EQ(Put("a/b/c", "x", "&if_match=00").Code(), "precondition_failed");
  EXPECT_EQ(Put("none", "x", "&if_match=00").Code(), "precondition_failed");
  std::string hash(put.Json().at("sha256").as_string());
  EXPECT_EQ(Put("a/b/c", "short", "&if_match=" + hash).status, 200);
  EXPECT_EQ(Get("a/b/c").body, "short");
  EXPECT_EQ(Stat("a/b/c").at("mode"), "0640");
  EXPECT_EQ(Put("x/y/z", "q").Code(), "file_not_found");
  EXPECT_EQ(Put("a/b", "q").Code(), "is_directory");
  EXPECT_EQ(Put("empty", "").status, 200);
  EXPECT_EQ(Get("empty").body, "");
  EXPECT_TRUE(NoLeftovers().empty());
}

TEST_F(GuestFiles, StatSaysTheMediaTypeWhenItIsAskedTo) {
  Put("a.md", "# words\n");
  Put("b", std::string("\x7f"
                       "ELF\0\1",
                       6));
  Sh("ln -s a.md link; mkdir dir; mkfifo pipe; chmod 0 a.md b");
  EXPECT_FALSE(Stat("b").as_object().contains("media_type"));
  EXPECT_EQ(guest_->Call("GET", "/v1/files/stat?path=b&media_type=1").Code(), "file_access_denied");
  Sh("chmod 644 a.md b");
  auto text = Stat("a.md", "&media_type=1");
  EXPECT_EQ(text.at("media_type"), "text/markdown");
  EXPECT_TRUE(text.at("text").as_bool());
  auto program = Stat("b", "&media_type=1");
  EXPECT_EQ(program.at("media_type"), "application/x-elf");
  EXPECT_FALSE(program.at("text").as_bool());
  EXPECT_EQ(Stat("link", "&follow=1&media_type=1").at("text").as_bool(), true);
  for (const char* other : {"link", "dir", "pipe"}) {
    EXPECT_FALSE(Stat(other, "&media_type=1").as_object().contains("text")) << other;
  }
}

TEST_F(GuestFiles, ChunkedBodiesAndBrokenUploads) {
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("PUT", "/v1/files/content?path=c",
                     "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
                     {{"Transfer-Encoding", "chunked"}});
  EXPECT_EQ(stream.ReadResponse().status, 200);
  EXPECT_EQ(Get("c").body, "hello world");
  {
    HttpStream broken(guest_->socket_path());
    broken.SendRequest("PUT", "/v1/files/content?path=c", "half", {{"Content-Length", "1000"}});
    ASSERT_TRUE(WaitFor([&] { return !NoLeftovers().empty(); }));
  }
  EXPECT_TRUE(WaitFor([&] { return NoLeftovers().empty(); }));
  EXPECT_EQ(Get("c").body, "hello world");
  HttpStream expecting(guest_->socket_path());
  expecting.SendRequest("PUT", "/v1/files/content?path=e", {},
                        {{"Content-Length", "3"}, {"Expect", "100-continue"}});
  EXPECT_EQ(expecting.ReadHead().status, 100);
  expecting.Send("abc");
  EXPECT_EQ(expecting.ReadResponse().status, 200);
}

TEST_F(GuestFiles, ARefusedUploadLeavesItsStreamUsable) {
  Put("f", "old");
  HttpStream stream(guest_->socket_path());
  // Its body is held back while the file is hashed, and refused without having been looked at.
  for (std::string_view body : {"one", "another"}) {
    stream.SendRequest("PUT", "/v1/files/content?path=f&if_match=00", body);
    EXPECT_EQ(stream.ReadResponse().Code(), "precondition_failed");
  }
  stream.SendRequest("GET", "/v1/files/content?path=f");
  EXPECT_EQ(stream.ReadResponse().body, "old");
}

TEST_F(GuestFiles, ALateUploadChangesNothing) {
  Put("c", "before");
  HttpStream slow(guest_->socket_path());
  slow.SendRequest("PUT", "/v1/files/content?path=c", "half",
                   {{"Content-Length", "1000"}, {"Caisson-Deadline-Ms", "200"}});
  EXPECT_EQ(slow.ReadResponse().Code(), "deadline_exceeded");
  EXPECT_EQ(Get("c").body, "before");
  EXPECT_TRUE(NoLeftovers().empty());
}

TEST_F(GuestFiles, TheUsersAuthorityAndNoMore) {
  EXPECT_EQ(Get("root-only").Code(), "file_access_denied");
  EXPECT_EQ(Get("root-readable").body, "shown");
  EXPECT_EQ(Put("root-only", "x").Code(), "file_access_denied");
  EXPECT_EQ(Put("root-readable", "x").Code(), "file_access_denied");
  EXPECT_EQ(Put("root-dir/x", "x").Code(), "file_access_denied");
  EXPECT_EQ(Put("root-dir/y", "x").Code(), "file_access_denied");
  EXPECT_EQ(Lines("root-only").Code(), "file_access_denied");
  EXPECT_EQ(Edit({{"path", "root-only"}, {"old", "s"}, {"new", "t"}}).Code(), "file_access_denied");
  EXPECT_EQ(Post("mkdir", {{"path", "root-dir/d"}}).Code(), "file_access_denied");
  EXPECT_EQ(Post("remove", {{"path", "root-dir/x"}}).Code(), "file_access_denied");
  EXPECT_EQ(Post("remove", {{"path", "root-dir"}, {"recursive", true}}).Code(),
            "file_access_denied");
  EXPECT_EQ(Post("move", {{"from", "root-dir/x"}, {"to", "x"}}).Code(), "file_access_denied");
  EXPECT_EQ(Get("/etc/shadow").Code(), "file_access_denied");
  EXPECT_EQ(Get("/proc/1/environ").Code(), "file_access_denied");
  // What the user may write keeps its foreign owner.
  EXPECT_EQ(Put("root-writable", "new").status, 200);
  EXPECT_EQ(Stat("root-writable").at("uid").as_int64(), 0);
  EXPECT_EQ(Get("root-writable").body, "new");
}

TEST_F(GuestFiles, Case19_NoSequenceIsExpanded) {
  Put("f", "price: P");
  std::string text = "$& $1 $$ $' $` \\0 \\1 %s {0}";
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "P"}, {"new", text}}).status, 200);
  EXPECT_EQ(Get("f").body, "price: " + text);
}

TEST_F(GuestFiles, Case21_EditCounts) {
  Put("f", "aXbXc");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "X"}, {"new", "Y"}}).Code(), "multiple_occurrences");
  EXPECT_EQ(Get("f").body, "aXbXc");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "X"}, {"new", "Y"}, {"expected_count", 3}}).Code(),
            "multiple_occurrences");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "X"}, {"new", "Y"}, {"replace_all", true}})
                .Json()
                .at("count")
                .as_int64(),
            2);
  EXPECT_EQ(Get("f").body, "aYbYc");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", ""}, {"new", "Y"}}).Code(), "invalid_argument");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "aY"}, {"new", "aY"}}).status, 200);
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "longer than the file is"}, {"new", ""}}).Code(),
            "string_not_found");
  Put("f", "aaa");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "aa"}, {"new", "b"}, {"dry_run", true}})
                .Json()
                .at("count")
                .as_int64(),
            1);
  EXPECT_EQ(Get("f").body, "aaa");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "aa"}, {"new", "b"}}).status, 200);
  EXPECT_EQ(Get("f").body, "ba");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "b"}, {"new", "c"}, {"if_match", "00"}}).Code(),
            "precondition_failed");
}

TEST_F(GuestFiles, Case22_ModeOwnerAndAttributesAreKept) {
  Put("f", "one two", "&mode=0755");
  std::string outside = guest_->Outside(guest_->work_dir() + "/f");
  bool attributes = ::setxattr(outside.c_str(), "user.note", "kept", 4, 0) == 0;
  for (int round = 0; round < 2; round++) {
    if (round == 0) {
      EXPECT_EQ(Edit({{"path", "f"}, {"old", "one"}, {"new", "1"}}).status, 200);
    } else {
      EXPECT_EQ(Put("f", "whole").status, 200);
    }
    EXPECT_EQ(Stat("f").at("mode"), "0755");
    EXPECT_EQ(Stat("f").at("uid").as_int64(), 1000);
    char value[8] = {};
    if (attributes) EXPECT_EQ(::getxattr(outside.c_str(), "user.note", value, sizeof value), 4);
  }
  Sh("ln -s f link; mkdir s; ln -s ../f s/link2");
  EXPECT_EQ(Put("link", "through").status, 200);
  EXPECT_EQ(Edit({{"path", "s/link2"}, {"old", "through"}, {"new", "twice"}}).status, 200);
  EXPECT_EQ(Get("f").body, "twice");
  EXPECT_EQ(Stat("link").at("type"), "symlink");
  EXPECT_EQ(Stat("link").at("target"), "f");
  EXPECT_EQ(Stat("link", "&follow=1").at("type"), "file");
  Put("g", "x", "&mode=0444");
  EXPECT_EQ(Put("g", "y").Code(), "file_access_denied");
}

TEST_F(GuestFiles, Case23_FinalNewlines) {
  Put("f", "a\nb");
  Edit({{"path", "f"}, {"old", "b"}, {"new", "c"}});
  EXPECT_EQ(Get("f").body, "a\nc");
  Put("f", "a\nb\n");
  Edit({{"path", "f"}, {"old", "b\n"}, {"new", "c\n"}});
  EXPECT_EQ(Get("f").body, "a\nc\n");
  Put("f", "a\r\nb\r\n");
  Edit({{"path", "f"}, {"old", "a\nb\n"}, {"new", "c\nd\n"}});
  EXPECT_EQ(Get("f").body, "c\r\nd\r\n");
  EXPECT_EQ(Edit({{"path", "f"}, {"old", "c\nd"}, {"new", "x"}, {"newline", "exact"}}).Code(),
            "string_not_found");
}

TEST_F(GuestFiles, Case24_LineWindows) {
  Put("f", "1\n2\r\n3");
  EXPECT_EQ(Lines("f").body, "1\n2\n3");
  EXPECT_EQ(Meta(Lines("f")).at("total_lines").as_int64(), 3);
  EXPECT_EQ(Lines("f", "&offset=10").Code(), "offset_past_end");
  EXPECT_EQ(Lines("f", "&limit=0").body, "");
  EXPECT_EQ(Lines("f", "&offset=-5&limit=1").body, "1");
  EXPECT_EQ(Meta(Lines("f", "&limit=1")).at("next_offset").as_int64(), 1);
  EXPECT_TRUE(Meta(Lines("f", "&offset=2")).at("next_offset").is_null());
  EXPECT_EQ(Lines("f", "&newline=keep").body, "1\n2\r\n3");
  Put("big", std::string(20'000'000, 'z'));
  auto big = Lines("big");
  EXPECT_EQ(big.body.size(), 512'000U);
  EXPECT_TRUE(Meta(big).at("cut").as_bool());
  EXPECT_EQ(Lines("big", "&max_line_bytes=10").body, "zzzzzzzzzz");
  Put("none", "");
  EXPECT_EQ(Lines("none").body, "");
  EXPECT_EQ(Meta(Lines("none")).at("total_lines").as_int64(), 0);
  Put("png", std::string("\x89PNG\r\n\x1a\n\0\0", 10));
  EXPECT_EQ(Lines("png").Code(), "not_text");
  EXPECT_EQ(Lines(".").Code(), "is_directory");
}

TEST_F(GuestFiles, Case25_PlantedLinks) {
  Sh("ln -s /etc/passwd p; ln -s / d; ln -s ../other s; ln -s /proc/self/fd m; ln -s /proc/1/root "
     "r; ln -s $PWD abs; mkdir a");
  // With the sandbox as root, links lead where the user could go.
  EXPECT_EQ(Get("p").body, Sh("cat /etc/passwd"));
  EXPECT_EQ(Put("p", "x").Code(), "file_access_denied");
  EXPECT_EQ(Stat("s").at("type"), "symlink");
  // Beneath the work directory nothing else is reached.
  for (const char* path :
       {"p", "d/etc/hostname", "../x", "a/../../x", "d", "s", "abs/root-readable"}) {
    EXPECT_EQ(Get(path, "&root=work_dir").Code(), "outside_root") << path;
    EXPECT_EQ(Put(path, "x", "&root=work_dir").Code(), "outside_root") << path;
  }
  EXPECT_EQ(Get("/etc/passwd", "&root=work_dir").Code(), "invalid_path");
  EXPECT_EQ(Post("remove", {{"path", "d/x"}, {"root", "work_dir"}}).Code(), "outside_root");
  EXPECT_EQ(Post("mkdir", {{"path", "d/tmp/x"}, {"root", "work_dir"}, {"parents", true}}).Code(),
            "outside_root");
  EXPECT_EQ(Get("root-readable", "&root=work_dir").body, "shown");
  // Magic links are not followed by anybody.
  EXPECT_EQ(Get("/proc/self/fd/0").Code(), "symlink_loop");
  EXPECT_EQ(Get("m/0").Code(), "symlink_loop");
  EXPECT_EQ(Get("/proc/self/mem").Code(), "file_access_denied");
  EXPECT_EQ(Get("/proc/self/environ").Code(), "file_access_denied");
  EXPECT_THAT((std::vector<std::string>{"symlink_loop", "file_access_denied"}),
              testing::Contains(Get("r/etc/passwd").Code()));
  // A link is removed, not what it points to.
  Sh("mkdir keep; touch keep/x; ln -s keep away");
  EXPECT_EQ(Post("remove", {{"path", "away"}, {"recursive", true}}).status, 200);
  EXPECT_EQ(Sh("ls keep"), "x\n");
}

TEST_F(GuestFiles, Case26_SwappedDirectoriesNeverLeadOutside) {
  std::string outside = guest_->Outside("/tmp/caisson-outside-" + std::to_string(::getpid()));
  std::string name = "/tmp/caisson-outside-" + std::to_string(::getpid());
  Sh("mkdir " + name + "; echo outside > " + name +
     "/passwd; mkdir work; echo inside > work/passwd");
  auto swapper = guest_->Call(
      "POST", kPathExecs,
      json::serialize(json::object{{"id", "swap"},
                                   {"background", true},
                                   {"command", "while :; do mv work real; ln -s " + name +
                                                   " work; rm work; mv real work; done"}}));
  ASSERT_EQ(swapper.status, 201);
  int inside = 0;
  for (int i = 0; i < 3000; i++) {
    auto got = Get("work/passwd", "&root=work_dir");
    if (got.status == 200) {
      inside++;
      EXPECT_EQ(got.body, "inside\n");
    }
    Put("work/x", "w", "&root=work_dir");
  }
  EXPECT_GT(inside, 0);
  guest_->Call("DELETE", "/v1/execs/swap");
  EXPECT_EQ(Sh("ls " + name), "passwd\n");
  Sh("rm -r " + name);
}

TEST_F(GuestFiles, Case28_OddEntriesDoNotStopAList) {
  Sh("mkdir t t/closed; chmod 0 t/closed; ln -s nowhere t/dangling; mkfifo t/fifo; i=0; while [ $i "
     "-lt 3000 ]; do : > t/f$i; i=$((i+1)); done");
  auto list = guest_->Call("GET", "/v1/files/list?path=t&limit=10000").Json();
  EXPECT_EQ(list.at("entries").as_array().size(), 3003U);
  EXPECT_FALSE(list.at("truncated").as_bool());
  auto page = guest_->Call("GET", "/v1/files/list?path=t&limit=2&after=f2999").Json();
  EXPECT_EQ(json::serialize(page.at("entries").at(0).at("name")), "\"f3\"");
  EXPECT_TRUE(page.at("truncated").as_bool());
  EXPECT_EQ(guest_->Call("GET", "/v1/files/list?path=t%2Fclosed").Code(), "file_access_denied");
  int64_t start = NowMs();
  EXPECT_EQ(Get("t/fifo").Code(), "not_a_regular_file");
  EXPECT_EQ(Lines("t/fifo").Code(), "not_a_regular_file");
  EXPECT_EQ(Put("t/fifo", "x").Code(), "not_a_regular_file");
  EXPECT_EQ(Get("/dev/zero").Code(), "not_a_regular_file");
  EXPECT_LT(NowMs() - start, 1000);
  EXPECT_EQ(Get("t/dangling").Code(), "file_not_found");
  EXPECT_EQ(Post("remove", {{"path", "t"}, {"recursive", true}}).Code(), "file_access_denied");
  Sh("chmod 700 t/closed");
  EXPECT_EQ(Post("remove", {{"path", "t"}, {"recursive", true}}).status, 200);
  EXPECT_EQ(Get("t").Code(), "file_not_found");
}

TEST_F(GuestFiles, Case29_TheUserOwnsWhatIsUploaded) {
  EXPECT_EQ(Put("up", "x", "&mode=0600").status, 200);
  EXPECT_EQ(Sh("echo more >> up && chmod 644 up && cat up && rm up && echo gone"), "xmore\ngone\n");
}

TEST_F(GuestFiles, Case30_AnyName) {
  const std::string names[] = {"a b",      "new\nline", "-rf",      "q\"'$x",
                               "\xC3\xA9", "e\xCC\x81", "\xFF.bin", std::string(255, 'n')};
  Post("mkdir", {{"path", "n"}});
  for (const std::string& name : names) EXPECT_EQ(Put("n/" + name, name).status, 200) << name;
  EXPECT_EQ(Put("n/" + std::string(256, 'n'), "x").Code(), "invalid_path");
  EXPECT_EQ(Put("n/" + std::string("a\0b", 3), "x").Code(), "invalid_path");
  EXPECT_EQ(Put("", "x").Code(), "invalid_path");
  EXPECT_EQ(Get(std::string(5000, '/')).Code(), "invalid_path");
  for (const std::string& name : names) EXPECT_EQ(Get("n/" + name).body, name);
  auto list = guest_->Call("GET", "/v1/files/list?path=n").Json();
  EXPECT_EQ(list.at("entries").as_array().size(), std::size(names));
  bool encoded = false;
  for (const auto& entry : list.at("entries").as_array()) {
    const auto* raw = entry.as_object().if_contains("name_base64");
    if (raw == nullptr) continue;
    encoded = true;
    EXPECT_EQ(*raw, "/y5iaW4=");
    EXPECT_EQ(entry.at("name"), "\xEF\xBF\xBD.bin");
  }
  EXPECT_TRUE(encoded);
  // n/\xFF.bin by its bytes.
  EXPECT_EQ(Post("remove", {{"path_base64", "bi//LmJpbg=="}}).status, 200);
  for (size_t i = 0; i < 6; i++)
    EXPECT_EQ(Post("remove", {{"path", "n/" + names[i]}}).status, 200) << names[i];
}

TEST_F(GuestFiles, Case35_RangesAndGrowingFiles) {
  Put("f", "0123456789");
  auto range = [&](const char* value) { return Get("f", "", {{"Range", value}}); };
  EXPECT_EQ(range("bytes=5-").body, "56789");
  EXPECT_EQ(range("bytes=-5").body, "56789");
  EXPECT_EQ(range("bytes=0-0").body, "0");
  EXPECT_EQ(range("bytes=0-0").status, 206);
  EXPECT_EQ(range("bytes=8-100").body, "89");
  EXPECT_EQ(range("bytes=2-3").headers.at("content-range"), "bytes 2-3/10");
  for (const char* bad : {"bytes=10-", "bytes=0-1,3-4", "bytes=5-2", "lines=1-2", "bytes=-0"}) {
    EXPECT_EQ(range(bad).status, 416) << bad;
  }
  EXPECT_EQ(Get(".").Code(), "is_directory");
  guest_->Call(
      "POST", kPathExecs,
      R"({"id":"w","background":true,"command":"i=0; while :; do head -c 500000 /dev/zero >> g; i=$((i+1)); [ $((i%5)) = 0 ] && : > g; done"})");
  ASSERT_TRUE(WaitFor([&] { return Get("g").status == 200; }));
  for (int i = 0; i < 50; i++) {
    auto got = Get("g");
    if (got.status != 200) continue;
    size_t length = std::strtoull(got.headers.at("content-length").c_str(), nullptr, 10);
    if (got.complete) {
      EXPECT_EQ(got.body.size(), length);
    } else {
      EXPECT_LT(got.body.size(), length);
    }
  }
  guest_->Call("DELETE", "/v1/execs/w");
}

TEST_F(GuestFiles, MoveMkdirRemove) {
  EXPECT_EQ(Post("mkdir", {{"path", "a/b"}}).Code(), "file_not_found");
  EXPECT_EQ(Post("mkdir", {{"path", "a/b"}, {"parents", true}, {"mode", "0700"}}).Json().at("mode"),
            "0700");
  EXPECT_EQ(Post("mkdir", {{"path", "a/b"}}).Code(), "file_exists");
  Put("x", "1");
  Put("y", "2");
  EXPECT_EQ(Post("move", {{"from", "x"}, {"to", "y"}}).Code(), "file_exists");
  EXPECT_EQ(Post("move", {{"from", "x"}, {"to", "y"}, {"overwrite", true}}).status, 200);
  EXPECT_EQ(Get("y").body, "1");
  EXPECT_EQ(Post("remove", {{"path", "a"}}).Code(), "is_directory");
  EXPECT_EQ(Post("remove", {{"path", "zz"}}).Code(), "file_not_found");
  EXPECT_FALSE(
      Post("remove", {{"path", "zz"}, {"missing_ok", true}}).Json().at("removed").as_bool());
  for (const std::string& path : {std::string("/"), std::string("."), guest_->work_dir()}) {
    EXPECT_GE(Post("remove", {{"path", path}, {"recursive", true}}).status, 400) << path;
  }
  EXPECT_EQ(Get("y").body, "1");
  std::string deep = "deep";
  for (int i = 0; i < 200; i++) deep += "/d";
  EXPECT_EQ(Post("mkdir", {{"path", deep}, {"parents", true}}).status, 200);
  EXPECT_EQ(Post("remove", {{"path", "deep"}, {"recursive", true}}).status, 200);
}

TEST_F(GuestFiles, ContentIsFast) {
  Sh("head -c 200000000 /dev/zero > big");
  HttpStream stream(guest_->socket_path());
  int64_t start = NowMs();
  stream.SendRequest("GET", "/v1/files/content?path=big");
  auto got = stream.ReadResponse();
  int64_t elapsed = NowMs() - start;
  EXPECT_EQ(got.body.size(), 200'000'000U);
  RecordProperty("get_mb_per_s", static_cast<int>(200'000 / std::max<int64_t>(elapsed, 1)));
  std::string data(100'000'000, 'p');
  start = NowMs();
  EXPECT_EQ(Put("up", data).status, 200);
  std::printf("GET %lld MB/s, PUT %lld MB/s, RSS %lld KiB\n",
              static_cast<long long>(200'000 / std::max<int64_t>(elapsed, 1)),
              static_cast<long long>(100'000 / std::max<int64_t>(NowMs() - start, 1)),
              static_cast<long long>(guest_->RssKiB()));
  if (kMeasures) EXPECT_LT(guest_->RssKiB(), 4096);
}

}  // namespace
}  // namespace caisson::guest
