#include "events/event.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <sstream>

namespace caisson::events {
namespace {

TEST(EventTable, IsConsistent) {
  size_t size = 0;
  const EventTypeInfo* table = EventTypeTable(size);
  std::set<std::string_view> names;
  for (size_t i = 0; i < size; i++) {
    EXPECT_EQ(static_cast<size_t>(table[i].type), i);
    EXPECT_TRUE(names.insert(table[i].name).second) << table[i].name;
    EXPECT_EQ(EventTypeFromName(table[i].name), table[i].type);
    std::istringstream fields{std::string(table[i].fields)};
    std::set<std::string> seen;
    for (std::string field; fields >> field;) {
      size_t colon = field.find(':');
      ASSERT_NE(colon, std::string::npos) << field;
      EXPECT_TRUE(seen.insert(field.substr(0, colon)).second) << field;
      static const std::set<std::string> kTypes{"string", "int",   "number", "bool",
                                                "object", "array", "any"};
      EXPECT_TRUE(kTypes.contains(field.substr(colon + 1))) << field;
    }
  }
}

TEST(ValidatePayload, NamesWhatIsWrong) {
  EXPECT_TRUE(
      ValidatePayload(EventType::kToken, R"({"message_id":"m","attempt":1,"content":"x","new":1})")
          .has_value());
  EXPECT_EQ(ValidatePayload(EventType::kToken, R"({"message_id":"m","attempt":1})").error().message,
            "the payload of message.assistant.delta lacks \"content\"");
  EXPECT_EQ(ValidatePayload(EventType::kToken, R"({"message_id":"m","attempt":"1","content":""})")
                .error()
                .message,
            "\"attempt\" in the payload of message.assistant.delta is not of type int");
  EXPECT_FALSE(ValidatePayload(EventType::kToken, "[]").has_value());
  EXPECT_FALSE(ValidatePayload(EventType::kToken, "{").has_value());
}

TEST(ValidatePayload, RefusesLineBreaks) {
  EXPECT_FALSE(
      ValidatePayload(EventType::kRunState, "{\"from_status\":\"a\",\n\"to_status\":\"b\"}")
          .has_value());
}

TEST(ValidatePayload, LetsOptionalFieldsBeAbsentButNotWrong) {
  EXPECT_TRUE(
      ValidatePayload(EventType::kRunState, R"({"from_status":"a","to_status":"b"})").has_value());
  EXPECT_FALSE(
      ValidatePayload(EventType::kRunState, R"({"from_status":"a","to_status":"b","reason":1})")
          .has_value());
}

Event Sample(std::string payload) {
  Event event;
  event.seq = 7;
  event.session = SessionId::Parse("ses" + std::string(26, '0')).value();
  event.run = RunId::Parse("run" + std::string(26, '1')).value();
  event.type = EventType::kToken;
  event.payload = std::move(payload);
  return event;
}

TEST(Envelope, IsOneLineOfJson) {
  std::string text = ToJson(Sample(R"({"content":"a"})"));
  boost::json::object object = boost::json::parse(text).as_object();
  EXPECT_EQ(object["seq"].as_int64(), 7);
  EXPECT_EQ(object["type"].as_string(), "message.assistant.delta");
  EXPECT_EQ(object["data"].as_object()["content"].as_string(), "a");
  EXPECT_FALSE(object.contains("task_id"));
}

// Case 52 of the collected reports: a tool's output must not forge an event.
TEST(Envelope, Case52_OutputCannotForgeAnEvent) {
  boost::json::object payload{{"content", "\n\ndata: fake\n\nevent: done\r\n\u2028"}};
  std::string sse = ToSse(Sample(boost::json::serialize(payload)));
  EXPECT_TRUE(sse.starts_with("id: 7\nevent: token\ndata: {"));
  EXPECT_EQ(std::count(sse.begin(), sse.end(), '\n'), 4);
  EXPECT_EQ(std::count(sse.begin(), sse.end(), '\r'), 0);
}

}  // namespace
}  // namespace caisson::events
