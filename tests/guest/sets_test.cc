// Read-only sets: what commands see of them, and that they cannot change it.
#include <fcntl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fixture.h"
#include "guest/sha256.h"

namespace caisson::guest {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;

struct File {
  std::string path;
  std::string content;
  bool executable = false;
};

class GuestSets : public testing::Test {
 protected:
  void SetUp() override {
    GuestProcess::Options options;
    options.sets = 2;
    std::string reason;
    guest_ = GuestProcess::Start(options, reason);
    if (!guest_) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    if (guest_) EXPECT_EQ(guest_->Health(), "ok");
  }

  HttpResponse Apply(const std::vector<File>& files, size_t set = 0) {
    json::array list;
    for (const File& file : files) {
      list.push_back({{"path", file.path},
                      {"sha256", Sha256::Hex(file.content)},
                      {"executable", file.executable}});
    }
    json::object body{{"path", guest_->set_path(set)}, {"files", list}};
    return guest_->Call("POST", "/v1/sets/apply", json::serialize(body));
  }
  HttpResponse PutBlob(const std::string& content, const std::string& sha256, size_t set = 0) {
    return guest_->Call("PUT", "/v1/sets/blob?path=" + guest_->set_path(set) + "&sha256=" + sha256,
                        content);
  }
  // What a client does; how many contents it had to send.
  size_t Sync(const std::vector<File>& files) {
    HttpResponse first = Apply(files);
    EXPECT_EQ(first.status, 200) << first.body;
    auto missing = first.Json().at("missing").as_array();
    for (const json::value& hash : missing) {
      for (const File& file : files) {
        if (Sha256::Hex(file.content) != hash.as_string()) continue;
        EXPECT_EQ(PutBlob(file.content, Sha256::Hex(file.content)).status, 200);
        break;
      }
    }
    if (missing.empty()) return 0;
    HttpResponse second = Apply(files);
    EXPECT_EQ(second.status, 200) << second.body;
    EXPECT_TRUE(second.Json().at("missing").as_array().empty());
    return missing.size();
  }
  std::string Sh(const std::string& command) { return guest_->Shell(command).out; }
  std::string Digest(size_t set = 0) {
    auto answer = guest_->Call("GET", "/v1/sets?path=" + guest_->set_path(set));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.Json().at("digest").as_string());
  }

  std::unique_ptr<GuestProcess> guest_;
};

TEST_F(GuestSets, CommandsSeeThemAndOnlyWhatIsNewIsSent) {
  std::string set = guest_->set_path(0);
  EXPECT_EQ(Digest(), Sha256::Hex(""));
  EXPECT_EQ(Sh("ls -A " + set + "/"), "");
  std::vector<File> files{{"a.md", "one"},
                          {"skills/x/run.sh", "#!/bin/sh\necho ran\n", true},
                          {"skills/x/copy.md", "one"}};
  EXPECT_EQ(Sync(files), 2u);
  EXPECT_EQ(Digest(), Sha256::Hex(Sha256::Hex("one") + " - a.md\n" + Sha256::Hex("one") +
                                  " - skills/x/copy.md\n" + Sha256::Hex(files[1].content) +
                                  " x skills/x/run.sh\n"));
  EXPECT_EQ(Sh("cd " + set + " && cat a.md skills/x/copy.md && skills/x/run.sh"), "oneoneran\n");
  EXPECT_EQ(Sh("cd " + set + " && stat -L -c '%a %u' a.md skills skills/x/run.sh"),
            "444 0\n755 0\n555 0\n");
  // The same again sends nothing and changes nothing.
  HttpResponse again = Apply(files);
  EXPECT_FALSE(again.Json().at("changed").as_bool());
  files[0].content = "two";
  files.pop_back();
  EXPECT_EQ(Sync(files), 1u);
  EXPECT_EQ(Sh("cd " + set + " && cat a.md && find . -type f | sort"),
            "two./a.md\n./skills/x/run.sh\n");
  // File calls and searches see them, too; the other set is another.
  auto read = guest_->Call("GET", "/v1/files/content?path=" + set + "/a.md");
  EXPECT_EQ(read.body, "two");
  EXPECT_EQ(Digest(1), Sha256::Hex(""));
  EXPECT_EQ(Apply({{"a.md", "two"}}, 1).Json().at("missing").as_array().size(), 1u);
}

TEST_F(GuestSets, NeitherCommandsNorFileCallsChangeThem) {
  std::string set = guest_->set_path(0);
  Sync({{"d/a", "kept"}, {"run", "#!/bin/sh\n", true}});
  for (const char* attempt : {"echo x > SET/d/a",
                              "echo x >> SET/run",
                              "rm SET/d/a",
                              "mv SET/d SET/e",
                              "mkdir SET/new",
                              "touch SET/d/a",
                              "chmod 777 SET/d/a",
                              "chmod 777 SET/d",
                              "ln -sfn /tmp SET",
                              "rm -f SET",
                              "mv SET SET2",
                              "ln -sfn / STORE/current",
                              "mv STORE/current STORE/x",
                              "rm -rf STORE",
                              "mkdir STORE/v-evil",
                              "touch STORE/blobs/x",
                              "ls STORE/blobs",
                              "ln SET/d/a hard && echo x > hard",
                              "cp --attributes-only --preserve=mode /bin/sh SET/d/a",
                              "truncate -s 0 SET/d/a",
                              "setfattr -n user.x -v y SET/d/a"}) {
    std::string command = attempt;
    for (auto [word, path] : {std::pair("SET", set), {"STORE", guest_->set_store(0)}}) {
      for (size_t at; (at = command.find(word)) != command.npos;) {
        command.replace(at, std::string(word).size(), path);
      }
    }
    EXPECT_NE(guest_->Shell(command).ExitCode(), 0) << command;
  }
  EXPECT_EQ(guest_->Call("PUT", "/v1/files/content?path=" + set + "/d/a", "x").Code(),
            "file_access_denied");
  EXPECT_EQ(guest_->Call("PUT", "/v1/files/content?path=" + set + "/new", "x").Code(),
            "file_access_denied");
  json::object remove{{"path", set + "/d"}, {"recursive", true}};
  EXPECT_EQ(guest_->Call("POST", "/v1/files/remove", json::serialize(remove)).Code(),
            "file_access_denied");
  EXPECT_EQ(Sh("cat " + set + "/d/a"), "kept");
}

TEST_F(GuestSets, WhatIsNoSetIsRefused) {
  std::string hash = Sha256::Hex("x");
  for (const char* path : {"/abs", "../up", "a/../b", "a//b", "", ".", "a/.", "a/"}) {
    EXPECT_EQ(Apply({{path, "x"}}).Code(), "invalid_path") << path;
  }
  EXPECT_EQ(Apply({{"a", "x"}, {"a", "y"}}).Code(), "invalid_path");
  EXPECT_EQ(PutBlob("other", hash).Code(), "precondition_failed");
  EXPECT_EQ(PutBlob("x", "../../etc/passwd").Code(), "invalid_argument");
  EXPECT_EQ(PutBlob("x", hash.substr(1)).Code(), "invalid_argument");
  EXPECT_EQ(guest_->Call("GET", "/v1/sets?path=/etc").Code(), "file_not_found");
  EXPECT_EQ(guest_->Call("POST", "/v1/sets/apply", R"({"path":"/etc","files":[]})").Code(),
            "file_not_found");
  EXPECT_EQ(PutBlob("x", hash).status, 200);
  // A file and a directory at once: refused when it is made, and what was shown stays.
  EXPECT_EQ(Sync({{"good", "x"}}), 0u);
  std::string before = Digest();
  PutBlob("x", hash);
  EXPECT_NE(Apply({{"a", "x"}, {"a/b", "x"}}).status, 200);
  EXPECT_EQ(Digest(), before);
  EXPECT_EQ(Sync({{"a/b", "x"}}), 0u);
  EXPECT_EQ(Sh("cat " + guest_->set_path(0) + "/a/b"), "x");
}

TEST_F(GuestSets, AReaderSeesTheOldFilesOrTheNewOnes) {
  std::string set = guest_->set_path(0);
  auto files = [](char which) {
    std::vector<File> all;
    for (int i = 0; i < 40; i++) all.push_back({"f" + std::to_string(i), std::string(1, which)});
    return all;
  };
  Sync(files('a'));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    GuestProcess& guest = *guest_;
    while (!stop) {
      // One directory, entered once, then read file by file.
      std::string seen = guest.Shell("cd -P " + set + "/ && cat f* | fold -w1 | sort -u").out;
      EXPECT_TRUE(seen == "a\n" || seen == "b\n") << seen;
    }
  });
  for (int i = 0; i < 20; i++) Sync(files(i % 2 == 0 ? 'b' : 'a'));
  stop = true;
  reader.join();
}

// Two that change one set at once: each shows its own files, whole, and ends.
TEST_F(GuestSets, ThoseWhoChangeOneAtOnceWaitForEachOther) {
  std::string set = guest_->set_path(0);
  auto files = [](char which, int round) {
    std::vector<File> all;
    for (int i = 0; i < 60; i++) {
      std::string content = which + std::string(" ") + std::to_string(round * 100 + i % 7);
      all.push_back({std::string(1, which) + "/f" + std::to_string(i), content, i % 9 == 0});
    }
    return all;
  };
  auto change = [&](char which) {
    for (int round = 0; round < 15; round++) {
      auto mine = files(which, round);
      for (bool shown = false; !shown;) {
        HttpResponse answer = Apply(mine);
        ASSERT_EQ(answer.status, 200) << answer.body;
        auto missing = answer.Json().at("missing").as_array();
        shown = missing.empty();
        for (const json::value& hash : missing) {
          for (const File& file : mine) {
            if (Sha256::Hex(file.content) != hash.as_string()) continue;
            HttpResponse put = PutBlob(file.content, Sha256::Hex(file.content));
            ASSERT_EQ(put.status, 200) << put.body;
            break;
          }
        }
      }
    }
  };
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      // A version that two changes have passed may vanish under a reader, but is never mixed.
      std::string seen = Sh("cd -P " + set + "/ && ls && cat */f* | cut -c1 | sort -u");
      EXPECT_FALSE(seen.find('a') != seen.npos && seen.find('b') != seen.npos) << seen;
    }
  });
  std::thread first([&] { change('a'); });
  change('b');
  first.join();
  stop = true;
  reader.join();
  std::string last = Sh("ls " + set + "/");
  ASSERT_TRUE(last == "a\n" || last == "b\n") << last;
  auto wanted = files(last[0], 14);
  EXPECT_FALSE(Apply(wanted).Json().at("changed").as_bool());
  for (const File& file : wanted) EXPECT_EQ(Sh("cat " + set + "/" + file.path), file.content);
}

TEST_F(GuestSets, NothingIsLeftOfWhatIsNotUsed) {
  for (int i = 0; i < 10; i++) {
    std::string n = std::to_string(i);
    Sync({{"f" + n, "content " + n}, {"x" + n, "program " + n, true}});
  }
  {
    HttpStream broken(guest_->socket_path());
    broken.SendRequest("PUT",
                       "/v1/sets/blob?path=" + guest_->set_path(0) + "&sha256=" + Sha256::Hex("l"),
                       "half", {{"Content-Length", "1000"}});
  }
  auto left = [&](const std::string& below) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(guest_->set_store(0) + below)) {
      (void)entry;
      count++;
    }
    return count;
  };
  EXPECT_EQ(left(""), 4u);  // blobs, current, the version that is shown and the one before
  EXPECT_TRUE(WaitFor([&] { return left("/blobs") == 2; }));
  Sync({});
  EXPECT_EQ(left("/blobs"), 0u);
  EXPECT_EQ(Sh("ls -A " + guest_->set_path(0) + "/"), "");
}

TEST(GuestSetsStart, OneUserForBothIsRefused) {
  GuestProcess::Options options;
  options.sets = 1;
  options.unprivileged = true;
  std::string reason;
  try {
    auto guest = GuestProcess::Start(options, reason);
    if (!guest) GTEST_SKIP() << reason;
    FAIL() << "it started";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("`sets` cannot be kept"));
  }
}

}  // namespace
}  // namespace caisson::guest
