#include "guest/json.h"

#include <gtest/gtest.h>

#include "guest/text.h"

namespace caisson::guest {
namespace {

TEST(JsonTest, ReadsValues) {
  auto json =
      Json::Parse(R"( {"a":1,"b":[true,false,null],"c":"\u00e9\ud83d\ude00\n","d":-2.5e1,"a":2} )");
  ASSERT_TRUE(json.has_value());
  EXPECT_EQ(json->Find("a")->AsInt(), 2);  // the last counts
  EXPECT_EQ(json->Find("b")->items().size(), 3U);
  EXPECT_EQ(json->Find("c")->AsString(), "é😀\n");
  EXPECT_TRUE(json->Find("d")->is(Json::Type::kOtherNumber));
  EXPECT_EQ(json->Find("e"), nullptr);
  EXPECT_EQ(Json::Parse("9223372036854775807")->AsInt(), INT64_MAX);
  EXPECT_TRUE(Json::Parse("9223372036854775808")->is(Json::Type::kOtherNumber));
}

TEST(JsonTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",          " ",           "{",        "[1,]",        "{\"a\"}",      "{\"a\":1,}",
        "01",        "+1",          "1.",       ".5",          "1e",           "tru",
        "nul",       "'a'",         "\"\\x\"",  "\"\\ud800\"", "\"\\ude00\"",  "\"\\ud800\\u0041\"",
        "\"\\u12\"", "\"\\u-123\"", "\"a\nb\"", "\"\xff\"",    "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
        "1 2",       "{\"a\":1}x",  "[1 2]",    "NaN",         "\"unended"}) {
    EXPECT_FALSE(Json::Parse(text).has_value()) << text;
  }
}

TEST(JsonTest, BoundsDepthAndNumber) {
  auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(Json::Parse(nested(64)).has_value());
  EXPECT_FALSE(Json::Parse(nested(66)).has_value());
  EXPECT_FALSE(Json::Parse(nested(100'000)).has_value());
  std::string many = "[0";
  for (int i = 0; i < 250'000; i++) many += ",0";
  EXPECT_FALSE(Json::Parse(many + "]").has_value());
}

TEST(JsonTest, FieldsCheckTypes) {
  auto json =
      Json::Parse(R"({"s":"x","n":5,"b":true,"raw_base64":"/w==","bad_base64":"?","z":null})");
  Fields fields(*json);
  EXPECT_EQ(fields.Required("s"), "x");
  EXPECT_EQ(fields.Int("n", 0, 10), 5);
  EXPECT_TRUE(fields.Bool("b", false));
  EXPECT_EQ(fields.Bytes("raw"), "\xff");
  EXPECT_FALSE(fields.Has("z"));
  EXPECT_FALSE(fields.error().has_value());
  EXPECT_EQ(fields.Int("n", 0, 4), std::nullopt);
  EXPECT_NE(fields.error()->message.find("`n`"), std::string::npos);
  Fields other(*json);
  other.Bytes("bad");
  EXPECT_TRUE(other.error().has_value());
  Fields typed(*json);
  typed.Bool("s", false);
  EXPECT_EQ(typed.error()->message, "`s` must be true or false");
}

TEST(JsonTest, Writes) {
  JsonWriter json;
  json.BeginObject()
      .Field("a", 1)
      .Key("b")
      .BeginArray()
      .String("x\"\\\n\x01")
      .Bool(true)
      .Null()
      .EndArray();
  json.Bytes("name", "\xff.x").EndObject();
  EXPECT_EQ(json.text(),
            "{\"a\":1,\"b\":[\"x\\\"\\\\\\n\\u0001\",true,null],\"name\":\"\xEF\xBF\xBD.x\",\"name_"
            "base64\":\"/y54\"}");
  EXPECT_TRUE(Json::Parse(json.text()).has_value());
}

TEST(TextTest, Utf8) {
  EXPECT_TRUE(IsValidUtf8("aé☕😀"));
  for (const char* bad : {"\x80", "\xc1\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                          "\xf5", "\xe2\x98"}) {
    EXPECT_FALSE(IsValidUtf8(bad)) << bad;
  }
  EXPECT_EQ(ReplaceBadUtf8("a\xff\xe2\x98"), "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TextTest, Base64AndPercent) {
  for (const char* text : {"", "f", "fo", "foo", "foob", "\xff\xfe\xfd"}) {
    EXPECT_EQ(Base64Decode(Base64Encode(text)), text);
  }
  EXPECT_EQ(Base64Encode("foob"), "Zm9vYg==");
  for (const char* bad : {"Z", "Zm9", "Zm9vYh==", "Zm9v=mFv", "====", "Zm 9"}) {
    EXPECT_EQ(Base64Decode(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(PercentDecode("a%20b+%FF"), "a b+\xff");
  for (const char* bad : {"%", "%2", "%zz", "a%2"})
    EXPECT_EQ(PercentDecode(bad), std::nullopt) << bad;
}

TEST(TextTest, Numbers) {
  EXPECT_EQ(ParseDecimal("18446744073709551615"), UINT64_MAX);
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "18446744073709551616", "0x1"}) {
    EXPECT_EQ(ParseDecimal(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(OctalMode(0644), "0644");
  EXPECT_EQ(OctalMode(04755), "04755");
  EXPECT_EQ(ParseOctalMode("0755"), 0755U);
  EXPECT_EQ(ParseOctalMode("999"), std::nullopt);
  EXPECT_TRUE(EqualConstantTime("abc", "abc"));
  EXPECT_FALSE(EqualConstantTime("abc", "abd"));
  EXPECT_FALSE(EqualConstantTime("abc", "abcd"));
}

}  // namespace
}  // namespace caisson::guest
