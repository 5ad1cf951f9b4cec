// Many files in one call, and copies of trees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "fixture.h"
#include "guest/protocol.h"

namespace caisson::guest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace json = boost::json;

std::string Record(RecordType type, std::string_view payload) {
  auto header = EncodeRecordHeader({type, static_cast<uint32_t>(payload.size()), 0});
  return std::string(header.begin(), header.end()) + std::string(payload);
}

std::string File(const json::object& head, std::string_view content) {
  std::string records = Record(RecordType::kFile, json::serialize(head));
  for (size_t at = 0; at < content.size(); at += kMaxRecordBytes) {
    records += Record(RecordType::kFileBytes, content.substr(at, kMaxRecordBytes));
  }
  return records;
}
std::string File(const std::string& path, std::string_view content) {
  return File(json::object{{"path", path}}, content);
}

std::string Noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// What a download gave for one path.
struct Got {
  std::string path;
  std::string content;
  std::string code;  // of a failure
  int64_t size = -1;
};

class GuestBatch : public GuestTest {
 protected:
  void Prepare(const std::string& work) override {
    std::ofstream(work + "/root-only") << "secret";
    ::chmod((work + "/root-only").c_str(), 0600);
    std::ofstream(work + "/root-readable") << "shown";
    ::chmod((work + "/root-readable").c_str(), 0644);
  }

  HttpResponse Upload(const std::string& body, const std::string& query = "") {
    return guest_->Call("POST", "/v1/files/upload?parents=1" + query, body);
  }
  // The code of each file's result, "" for a written one.
  static std::vector<std::string> Codes(const HttpResponse& response) {
    std::vector<std::string> codes;
    for (const json::value& result : response.Json().at("results").as_array()) {
      const json::value* code = result.as_object().if_contains("code");
      codes.push_back(code == nullptr ? "" : std::string(code->as_string()));
    }
    return codes;
  }

  static std::vector<Got> Parse(std::string_view body, bool& ended) {
    std::vector<Got> files;
    ended = false;
    while (body.size() >= RecordHeader::kSize && !ended) {
      std::array<uint8_t, RecordHeader::kSize> bytes{};
      std::copy_n(body.begin(), bytes.size(), bytes.begin());
      auto header = DecodeRecordHeader(bytes);
      if (!header || body.size() < bytes.size() + header->length) break;
      std::string_view payload = body.substr(bytes.size(), header->length);
      body.remove_prefix(bytes.size() + header->length);
      if (header->type == RecordType::kFileBytes) {
        EXPECT_EQ(header->offset, files.back().content.size());
        files.back().content += payload;
        continue;
      }
      ended = header->type == RecordType::kBatchEnd;
      if (ended) break;
      json::value info = json::parse(payload);
      bool failed = header->type == RecordType::kFileError;
      bool whole = files.empty() || !files.back().code.empty() ||
                   static_cast<int64_t>(files.back().content.size()) == files.back().size;
      if (whole) files.push_back({std::string(info.at("path").as_string()), "", "", -1});
      if (failed) files.back().code = info.at("code").as_string();
      if (!failed) files.back().size = info.at("size_bytes").as_int64();
    }
    return files;
  }
  std::vector<Got> Download(json::object request) {
    HttpResponse response = guest_->Call("POST", "/v1/files/download", json::serialize(request));
    EXPECT_EQ(response.status, 200) << response.body;
    bool ended = false;
    std::vector<Got> files = Parse(response.body, ended);
    EXPECT_TRUE(ended);
    return files;
  }
};

TEST_F(GuestBatch, RoundTrip) {
  std::string large = Noise(300'000, 1);
  std::string body = File("a/b/large", large) + File("empty", "") +
                     File({{"path", "script"}, {"mode", "0755"}}, "#!/bin/sh\necho ran\n") +
                     File("/root-only/x", "no") + File("root-only", "no") + File("a", "no") +
                     File("", "no") + File("last", "last");
  HttpResponse answer = Upload(body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(Codes(answer), ElementsAre("", "", "", "file_access_denied", "file_access_denied",
                                         "is_directory", "invalid_path", ""));
  EXPECT_EQ(answer.Json().at("results").at(0).at("size_bytes").as_int64(), 300'000);
  EXPECT_EQ(Sh("./script; stat -c %u:%a a/b/large script"), "ran\n1000:644\n1000:755\n");

  Sh("mkfifo fifo; ln -s a/b/large link; ln -s nowhere dangling");
  std::vector<Got> files = Download({{"paths",
                                      {"link", "missing", "a", "fifo", "root-only", "root-readable",
                                       "empty", "dangling", "", "/dev/zero", "last"}}});
  std::vector<std::string> codes;
  for (const Got& file : files) codes.push_back(file.code);
  EXPECT_THAT(codes, ElementsAre("", "file_not_found", "is_directory", "not_a_regular_file",
                                 "file_access_denied", "", "", "file_not_found", "invalid_path",
                                 "not_a_regular_file", ""));
  EXPECT_TRUE(files[0].content == large);
  EXPECT_EQ(files[0].size, 300'000);
  EXPECT_EQ(files[5].content, "shown");
  EXPECT_EQ(files[10].content, "last");
}

TEST_F(GuestBatch, NamesOfAnyBytesAndTheWorkDirRoot) {
  std::string body = File(json::object{{"path_base64", "//4="}}, "bytes");
  EXPECT_THAT(Codes(Upload(body)), ElementsAre(""));
  std::vector<Got> files =
      Download({{"paths", json::array{json::object{{"path_base64", "//4="}}}}});
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].content, "bytes");

  EXPECT_THAT(Codes(Upload(File("in", "1") + File("../out", "2") + File("/tmp/out", "3"),
                           "&root=work_dir")),
              ElementsAre("", "outside_root", "invalid_path"));
  Sh("ln -s /etc/hostname out");
  files = Download({{"paths", {"in", "out", "../../etc/hostname"}}, {"root", "work_dir"}});
  EXPECT_EQ(files[0].content, "1");
  EXPECT_EQ(files[1].code, "outside_root");
  EXPECT_EQ(files[2].code, "outside_root");
}

// The four rules: too many, one too large, too much in all, and never cut.
TEST_F(GuestBatch, LimitsRefuseAndNeverCut) {
  std::string three = File("1", "a") + File("2", "b") + File("3", "c");
  EXPECT_EQ(Upload(three, "&max_files=2").Code(), "too_many_files");
  EXPECT_EQ(Sh("ls -A | grep -v root"), "");

  EXPECT_THAT(
      Codes(Upload(File("1", "12345") + File("2", "123456") + File("3", ""), "&max_file_bytes=5")),
      ElementsAre("", "file_too_large", ""));
  // What was refused takes nothing of the total.
  EXPECT_THAT(Codes(Upload(File("4", "1234") + File("5", "123456") + File("6", "123456") +
                               File("7", "1") + File("8", "1"),
                           "&max_total_bytes=5")),
              ElementsAre("", "file_too_large", "file_too_large", "", "file_too_large"));
  EXPECT_EQ(Sh("ls | grep -v root | tr -d '\\n'"), "1347");
  // A file that was there keeps its content when the new one is refused.
  EXPECT_THAT(Codes(Upload(File("1", "123456"), "&max_file_bytes=5")),
              ElementsAre("file_too_large"));
  EXPECT_EQ(Sh("cat 1"), "12345");

  EXPECT_EQ(
      guest_->Call("POST", "/v1/files/download", R"({"paths":["1","3"],"max_files":1})").Code(),
      "too_many_files");
  std::vector<Got> files =
      Download({{"paths", {"1", "4", "7", "3"}}, {"max_file_bytes", 4}, {"max_total_bytes", 4}});
  std::vector<std::string> seen;
  for (const Got& file : files) seen.push_back(file.code + file.content);
  EXPECT_THAT(seen, ElementsAre("file_too_large", "1234", "file_too_large", ""));

  for (const char* limit : {"max_files=65", "max_file_bytes=8388609", "max_total_bytes=33554433"}) {
    EXPECT_EQ(Upload("", std::string("&") + limit).Code(), "transfer_limits_not_permitted");
  }
  EXPECT_EQ(guest_->Call("POST", "/v1/files/download", R"({"paths":[],"max_files":65})").Code(),
            "transfer_limits_not_permitted");
}

// A sandbox has caps of its own, in each direction.
class GuestBatchCaps : public GuestBatch {
  json::object Transfer() override {
    return {{"in", {{"max_files", 2}, {"max_file_bytes", 3}, {"max_total_bytes", 4}}},
            {"out", {{"max_files", 256}, {"max_file_bytes", 64 << 20}}}};
  }
};

TEST_F(GuestBatchCaps, AreWhatACallHasAndAtMostMayAskFor) {
  EXPECT_EQ(Upload(File("1", "a") + File("2", "b") + File("3", "c")).Code(), "too_many_files");
  EXPECT_THAT(Codes(Upload(File("1", "1234") + File("2", "123"))),
              ElementsAre("file_too_large", ""));
  EXPECT_THAT(Codes(Upload(File("3", "123") + File("4", "12"))), ElementsAre("", "file_too_large"));
  EXPECT_EQ(Upload(File("5", "1"), "&max_files=3").Code(), "transfer_limits_not_permitted");
  EXPECT_EQ(Upload(File("5", "1"), "&max_file_bytes=4").Code(), "transfer_limits_not_permitted");
  EXPECT_EQ(Upload(File("5", "1"), "&max_total_bytes=5").Code(), "transfer_limits_not_permitted");
  EXPECT_THAT(Codes(Upload(File("5", "12"), "&max_file_bytes=1")), ElementsAre("file_too_large"));

  Sh("head -c 10000000 /dev/zero > large");
  std::vector<Got> files = Download({{"paths", json::array(100, "large")}, {"max_files", 256}});
  ASSERT_EQ(files.size(), 100u);
  EXPECT_EQ(files[2].content.size(), 10'000'000u);  // over the usual cap of a file
  EXPECT_EQ(files[3].code, "file_too_large");       // the usual total
}

TEST_F(GuestBatch, WhatIsNoBatchChangesNothing) {
  Sh("echo -n old > old");
  std::string good = File("old", "new") + File("other", "new");
  std::string header = Record(RecordType::kFileBytes, std::string(100, 'x'));
  for (const std::string& bad :
       {header, good + header.substr(0, 7), good + header.substr(0, 50),
        good + Record(RecordType::kBatchEnd, "{}"), good + Record(RecordType::kStdout, "x"),
        good + std::string(16, '\xff'), good + Record(RecordType::kFile, "{"),
        good + Record(RecordType::kFile, "[]"), good + Record(RecordType::kFile, ""),
        good + File(json::object{{"mode", "0644"}}, ""),
        good + File({{"path", "x"}, {"mode", "rwx"}}, ""), good + File({{"path", 7}}, "")}) {
    HttpResponse answer = Upload(bad);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(Sh("cat old; ls -A | grep -v -e root -e old"), "old");
  }
  EXPECT_EQ(Upload(good, "&root=elsewhere").status, 400);
  for (const char* bad : {R"({})", R"({"paths":"x"})", R"({"paths":[1]})", R"({"paths":[{}]})",
                          R"({"paths":["old"],"max_files":-1})", R"([])"}) {
    EXPECT_EQ(guest_->Call("POST", "/v1/files/download", bad).status, 400) << bad;
  }
}

TEST_F(GuestBatch, ALateOrBrokenBatchChangesNothing) {
  Sh("echo -n old > old");
  std::string body = File("old", "new") + File("other", Noise(100'000, 3));
  {
    HttpStream late(guest_->socket_path());
    late.SendRequest(
        "POST", "/v1/files/upload", "",
        {{"Content-Length", std::to_string(body.size())}, {"Caisson-Deadline-Ms", "200"}});
    late.Send(body.substr(0, body.size() - 1));
    EXPECT_EQ(late.ReadResponse().Code(), "deadline_exceeded");
  }
  {
    HttpStream cut(guest_->socket_path());
    cut.SendRequest("POST", "/v1/files/upload", "",
                    {{"Content-Length", std::to_string(body.size())}});
    cut.Send(body.substr(0, body.size() - 1));
    // The files are staged, and readers see the old one.
    ASSERT_TRUE(WaitFor([&] { return Sh("ls -A | grep -c caisson") == "2\n"; }));
    EXPECT_EQ(Sh("cat old"), "old");
    cut.Close();
  }
  EXPECT_TRUE(WaitFor([&] { return Sh("ls -A | grep -v -e root -e old") == ""; }));
  EXPECT_EQ(Sh("cat old"), "old");
}

// Records are not aligned to anything.
TEST_F(GuestBatch, ArrivesInAnyPieces) {
  std::string content = Noise(5'000, 4);
  std::string body = File("a", content) + File("b", "") + File("c", content.substr(0, 100));
  std::mt19937 random(5);
  for (size_t most : {1u, 7u, 40u, 3000u}) {
    Sh("rm -f a b c");
    HttpStream stream(guest_->socket_path());
    stream.SendRequest("POST", "/v1/files/upload", "", {{"Transfer-Encoding", "chunked"}});
    for (size_t at = 0; at < body.size();) {
      size_t size = std::min(body.size() - at, 1 + random() % most);
      char head[16];
      snprintf(head, sizeof head, "%zx\r\n", size);
      stream.Send(head + body.substr(at, size) + "\r\n");
      at += size;
    }
    stream.Send("0\r\n\r\n");
    EXPECT_THAT(Codes(stream.ReadResponse()), ElementsAre("", "", ""));
    std::vector<Got> files = Download({{"paths", {"a", "b", "c"}}});
    EXPECT_TRUE(files[0].content == content);
    EXPECT_EQ(files[1].content, "");
    EXPECT_TRUE(files[2].content == content.substr(0, 100));
  }
}

class GuestBatchOfLarge : public GuestBatch {
  json::object Transfer() override {
    return {{"out", {{"max_file_bytes", 60'000'000}, {"max_total_bytes", 70'000'000}}}};
  }
};

TEST_F(GuestBatchOfLarge, AFileThatShrinksWhileItIsReadFailsAlone) {
  Sh("head -c 60000000 /dev/zero > big; echo -n after > after");
  HttpStream stream(guest_->socket_path());
  stream.SendRequest("POST", "/v1/files/download", R"({"paths":["big","after"]})");
  HttpResponse response = stream.ReadHead();
  ASSERT_EQ(response.status, 200);
  std::string body = stream.ReadBodySome();
  Sh("truncate -s 10 big");
  while (!stream.body_over()) body += stream.ReadBodySome();
  bool ended = false;
  std::vector<Got> files = Parse(body, ended);
  EXPECT_TRUE(ended);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].code, "conflict");
  EXPECT_EQ(files[0].size, 60'000'000);
  EXPECT_EQ(files[1].content, "after");
}

// --- Copies -----------------------------------------------------------------------------------

class GuestCopy : public GuestBatch {
 protected:
  HttpResponse Copy(json::object request) {
    return guest_->Call("POST", "/v1/files/copy", json::serialize(request));
  }
};

TEST_F(GuestCopy, FilesKeepTheirModeAndReplaceOnlyWhenAsked) {
  Sh("printf hello > a; chmod 750 a; printf old > b; mkdir d; ln -s a link");
  HttpResponse copied = Copy({{"from", "a"}, {"to", "c"}});
  EXPECT_EQ(copied.status, 200) << copied.body;
  EXPECT_EQ(copied.Json().at("files").as_int64(), 1);
  EXPECT_EQ(copied.Json().at("size_bytes").as_int64(), 5);
  EXPECT_EQ(Sh("cat c; stat -c %a c"), "hello750\n");
  EXPECT_EQ(Copy({{"from", "a"}, {"to", "b"}}).Code(), "file_exists");
  EXPECT_EQ(Sh("cat b"), "old");
  EXPECT_EQ(Copy({{"from", "a"}, {"to", "b"}, {"overwrite", true}}).status, 200);
  EXPECT_EQ(Sh("cat b"), "hello");
  EXPECT_EQ(Copy({{"from", "a"}, {"to", "d"}, {"overwrite", true}}).Code(), "is_directory");
  EXPECT_EQ(Copy({{"from", "link"}, {"to", "link2"}}).Json().at("links").as_int64(), 1);
  EXPECT_EQ(Sh("readlink link2"), "a\n");
  EXPECT_EQ(Copy({{"from", "missing"}, {"to", "x"}}).Code(), "file_not_found");
  EXPECT_EQ(Copy({{"from", "a"}, {"to", "no/x"}}).Code(), "file_not_found");
  EXPECT_EQ(Copy({{"from", "root-only"}, {"to", "x"}}).Code(), "file_access_denied");
  EXPECT_EQ(Copy({{"from", "d"}, {"to", "x"}}).Code(), "is_directory");
  Sh("mkfifo fifo");
  EXPECT_EQ(Copy({{"from", "fifo"}, {"to", "x"}}).Code(), "not_a_regular_file");
}

TEST_F(GuestCopy, Trees) {
  Sh("mkdir -p t/deep/er t/empty; printf 1 > t/one; printf 22 > t/deep/er/two; chmod 600 t/one;"
     "chmod 700 t/empty; ln -s ../one t/deep/link; ln -s / t/host; mkfifo t/fifo");
  json::value result = Copy({{"from", "t"}, {"to", "u"}, {"recursive", true}}).Json();
  EXPECT_EQ(result.at("files").as_int64(), 2);
  EXPECT_EQ(result.at("directories").as_int64(), 4);
  EXPECT_EQ(result.at("links").as_int64(), 2);
  EXPECT_EQ(result.at("skipped").as_int64(), 1);
  EXPECT_EQ(result.at("size_bytes").as_int64(), 3);
  EXPECT_EQ(Sh("cd u; cat one deep/link deep/er/two; readlink host; stat -c %a one empty; ls"),
            "1122/\n600\n700\ndeep\nempty\nhost\none\n");
  EXPECT_EQ(Copy({{"from", "t"}, {"to", "u"}, {"recursive", true}}).Code(), "file_exists");
  for (const char* inside : {"t/x", "t/deep/er/x", "t/deep/../x"}) {
    EXPECT_EQ(Copy({{"from", "t"}, {"to", inside}, {"recursive", true}}).Code(),
              "invalid_argument");
  }
  EXPECT_EQ(Sh("find t | wc -l"), "9\n");

  Sh("mkdir -p v/sub; cp u/one v/sub/fine; printf s > v/sub/secret; chmod 0 v/sub/secret");
  HttpResponse failed = Copy({{"from", "v"}, {"to", "w"}, {"recursive", true}});
  EXPECT_EQ(failed.Code(), "file_access_denied");
  EXPECT_THAT(std::string(failed.Json().at("message").as_string()), HasSubstr("v/sub/secret: "));
}

// The copier is the command user: what it may not read it cannot be made to copy, whatever is
// swapped in meanwhile.
TEST_F(GuestCopy, ARaceWithLinksNeverReadsAnothersFile) {
  Sh("mkdir t; printf mine > t/file");
  guest_->Call("POST", kPathExecs,
               R"({"background":true,"timeout_ms":20000,"command":)"
               R"("while :; do ln -sf $PWD/root-only t/swap; mv -f t/swap t/file; )"
               R"(printf mine > t/swap; mv -f t/swap t/file; done"})");
  for (int i = 0; i < 100; i++) {
    Sh("rm -rf u");
    (void)Copy({{"from", "t"}, {"to", "u"}, {"recursive", true}});
    std::string got = Sh("test -L u/file || cat u/file 2>/dev/null");
    EXPECT_TRUE(got == "mine" || got.empty()) << got;
  }
}

}  // namespace
}  // namespace caisson::guest
