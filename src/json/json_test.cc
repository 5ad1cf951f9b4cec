#include "json/json.h"

#include <gtest/gtest.h>

#include "json/reader.h"

namespace caisson::json {
namespace {

TEST(Parse, IsStrictAndSaysWhere) {
  EXPECT_TRUE(Parse(" {\"a\": [1, 2.5, null]} \n").has_value());
  for (const char* text :
       {"", "{", "{\"a\":1,}", "[1] x", "{'a':1}", "NaN", "\"\xff\"", "{\"a\":1} {\"b\":2}"}) {
    auto json = Parse(text);
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().code, ErrorCode::kInvalidJson);
    EXPECT_NE(json.error().message.find("at byte"), std::string::npos);
  }
  EXPECT_EQ(ParseObject("[]").error().code, ErrorCode::kInvalidJson);
}

TEST(Parse, BoundsDepth) {
  std::string deep(200, '[');
  deep += std::string(200, ']');
  EXPECT_FALSE(Parse(deep).has_value());
  EXPECT_TRUE(Parse(std::string(60, '[') + std::string(60, ']')).has_value());
}

TEST(SerializeCanonical, SortsMembersEverywhere) {
  EXPECT_EQ(SerializeCanonical(Parse(R"({"b":[{"d":1,"c":"\"x"}],"a":null})").value()),
            R"({"a":null,"b":[{"c":"\"x","d":1}]})");
  EXPECT_EQ(SerializeCanonical(Parse("{}").value()), "{}");
  EXPECT_EQ(SerializeCanonical(Parse(R"({"":{}})").value()), R"({"":{}})");
}

TEST(ObjectReader, NamesTheFirstWrongField) {
  object json = ParseObject(R"({"name":"x","limits":{"steps":1.0},"on":1})").value();
  ObjectReader reader(json);
  EXPECT_EQ(reader.RequiredString("name"), "x");
  const object* limits = reader.Object("limits");
  ASSERT_NE(limits, nullptr);
  ObjectReader nested(*limits, reader.PathOf("limits"));
  EXPECT_EQ(nested.Int("steps", 1, 10), std::nullopt);
  EXPECT_EQ(nested.Finish(ObjectReader::Unknown::kRefuse).error().message,
            "\"limits.steps\" must be an integer between 1 and 10");
  EXPECT_EQ(reader.Bool("on"), std::nullopt);
  EXPECT_EQ(reader.String("missing"), std::nullopt);
  EXPECT_EQ(reader.Finish(ObjectReader::Unknown::kRefuse).error().message,
            "\"on\" must be true or false");
}

TEST(ObjectReader, RefusesUnknownFieldsWhenAsked) {
  object json = ParseObject(R"({"nmae":"x"})").value();
  ObjectReader reader(json);
  EXPECT_EQ(reader.String("name"), std::nullopt);
  EXPECT_TRUE(reader.Finish(ObjectReader::Unknown::kIgnore).has_value());
  EXPECT_EQ(reader.Finish(ObjectReader::Unknown::kRefuse).error().message,
            "\"nmae\" is not a field that is known here");
}

TEST(ObjectReader, ReadsEveryType) {
  object json = ParseObject(R"({"i":-5,"n":2,"b":false,"a":["x","y"],"c":"two","z":null})").value();
  ObjectReader reader(json);
  EXPECT_EQ(reader.Int("i", -10, 10), -5);
  EXPECT_EQ(reader.Number("n", 0, 3), 2.0);
  EXPECT_EQ(reader.Bool("b"), false);
  EXPECT_EQ(reader.Strings("a"), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(reader.Choice("c", {"one", "two"}), "two");
  EXPECT_EQ(reader.String("z"), std::nullopt);
  EXPECT_TRUE(reader.Finish(ObjectReader::Unknown::kRefuse).has_value());
}

}  // namespace
}  // namespace caisson::json
