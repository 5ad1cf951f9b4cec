#include "guest/tar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

namespace caisson::guest {
namespace {

TarReader::Source From(std::string text, size_t most = SIZE_MAX) {
  return [text = std::move(text), at = size_t{0}, most](char* buffer,
                                                        size_t size) mutable -> Result<size_t> {
    size = std::min({size, text.size() - at, most});
    std::copy_n(text.begin() + static_cast<ptrdiff_t>(at), size, buffer);
    at += size;
    return size;
  };
}

TEST(Tar, WhatIsWrittenIsReadAsItWas) {
  const std::string long_name = std::string(90, 'd') + "/" + std::string(200, 'n') + "é";
  const TarEntry entries[] = {
      {"a", TarEntry::Type::kFile, "", 5, 0644, 1'700'000'000},
      {"dir/", TarEntry::Type::kDirectory, "", 0, 01755, 0},
      {"link", TarEntry::Type::kSymlink, "a", 0, 0777, 7},
      {long_name, TarEntry::Type::kFile, "", 700, 0600, 1},
      {"to-long", TarEntry::Type::kSymlink, long_name, 0, 0777, 1},
      {std::string(100, 'x'), TarEntry::Type::kHardLink, std::string(100, 'y'), 0, 0644, 1},
      {"last", TarEntry::Type::kFile, "", 512, 0644, 1},
  };
  std::string archive;
  for (const TarEntry& entry : entries) {
    archive += TarHeader(entry) + std::string(static_cast<size_t>(entry.size), 'D') +
               TarPadding(entry.size);
  }
  archive += TarEnd();
  EXPECT_EQ(archive.size() % 512, 0u);
  for (size_t most : {size_t{1}, size_t{511}, SIZE_MAX}) {
    TarReader reader(From(archive, most));
    for (const TarEntry& entry : entries) {
      auto read = reader.Next();
      ASSERT_TRUE(read.has_value() && read->has_value()) << entry.path;
      EXPECT_EQ((*read)->path, entry.path);
      EXPECT_EQ((*read)->type, entry.type);
      EXPECT_EQ((*read)->link, entry.link);
      EXPECT_EQ((*read)->size, entry.size);
      EXPECT_EQ((*read)->mode, entry.mode);
      EXPECT_EQ((*read)->modified_s, entry.modified_s);
      // Some of the data, or none: the next entry is found all the same.
      char some[100];
      if (entry.size == 700) EXPECT_GT(reader.Read(some, sizeof some).value(), 0u);
    }
    EXPECT_FALSE(reader.Next().value().has_value());
  }
}

TEST(Tar, SizesBeyondOctalAreSaid) {
  TarEntry entry{"huge", TarEntry::Type::kFile, "", int64_t{1} << 40, 0644, 0};
  TarReader reader(From(TarHeader(entry)));
  EXPECT_EQ(reader.Next().value()->size, int64_t{1} << 40);
}

// The field `letter` of a header, with its checksum set right again.
std::string WithType(std::string header, char letter) {
  header[156] = letter;
  unsigned sum = 0;
  for (size_t i = 0; i < 512; i++) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  char text[8];
  snprintf(text, sizeof text, "%06o", sum);
  header.replace(148, 7, text, 7);
  return header;
}

TEST(Tar, PaxHeadersDescribeTheNextEntry) {
  auto pax = [](const std::string& records, char letter = 'x') {
    TarEntry about{"pax", TarEntry::Type::kFile, "", static_cast<int64_t>(records.size()), 0, 0};
    return WithType(TarHeader(about), letter) + records + TarPadding(about.size);
  };
  std::string plain = TarHeader({"plain", TarEntry::Type::kFile, "", 0, 0644, 5});
  auto first = [&](const std::string& archive) { return TarReader(From(archive)).Next(); };
  EXPECT_EQ(first(pax("13 path=name\n") + plain).value()->path, "name");
  EXPECT_EQ(first(pax("15 mtime=99.75\n") + plain).value()->modified_s, 99);
  EXPECT_EQ(first(pax("13 comment=x\n") + plain).value()->path, "plain");
  // What is global is not about this entry, in what is taken over.
  EXPECT_EQ(first(pax("13 path=name\n", 'g') + plain).value()->path, "plain");
  EXPECT_EQ(first(pax(std::string("long\0", 5), 'L') + plain).value()->path, "long");
  for (const char* bad : {"12 path=name", "99 path=name\n", "0 path=name\n", "x path=name\n",
                          "6 path\n", "11 path=name\n", "9 size=x\n", "11 size=-1\n", " \n"}) {
    EXPECT_EQ(first(pax(bad) + plain).error().code, ErrorCode::kInvalidArgument) << bad;
  }
  std::string large(1'100'000, 'x');
  EXPECT_EQ(first(pax(large, 'L') + plain).error().code, ErrorCode::kInvalidArgument);
}

TEST(Tar, OldAndStrangeHeaders) {
  auto type = [](char letter, const std::string& path = "p") {
    std::string header = WithType(TarHeader({path, TarEntry::Type::kFile, "", 0, 0, 0}), letter);
    return TarReader(From(header)).Next().value()->type;
  };
  EXPECT_EQ(type('\0'), TarEntry::Type::kFile);
  EXPECT_EQ(type('7'), TarEntry::Type::kFile);
  EXPECT_EQ(type('\0', "p/"), TarEntry::Type::kDirectory);
  for (char letter : {'3', '4', '6', 'S', 'V', 'M', '?'}) {
    EXPECT_EQ(type(letter), TarEntry::Type::kOther) << letter;
  }
}

}  // namespace
}  // namespace caisson::guest
