#include "http/sse_decoder.h"

#include <gtest/gtest.h>

#include <vector>

namespace caisson::http {
namespace {

std::vector<std::string> Decode(const std::string& text, size_t step) {
  SseDecoder decoder;
  std::vector<std::string> events;
  for (size_t i = 0; i < text.size(); i += step) {
    decoder.Feed(text.substr(i, step));
    for (;;) {
      auto event = decoder.Next();
      EXPECT_TRUE(event.has_value());
      if (!event->has_value()) break;
      events.push_back((*event)->event + "|" + (*event)->data);
    }
  }
  return events;
}

TEST(SseDecoder, ReadsEveryLineEndAtAnyCut) {
  std::string text =
      ": comment\n\ndata: a\n\nevent: x\r\ndata: b\r\ndata:c\r\n\r\ndata:  d\rdata\r\revent: no "
      "data\n\ndata: e\nid: 5\n\ndata: cut";
  std::vector<std::string> expected{"|a", "x|b\nc", "| d\n", "|e"};
  for (size_t step = 1; step < text.size(); step++) EXPECT_EQ(Decode(text, step), expected) << step;
}

TEST(SseDecoder, BoundsAnEvent) {
  SseDecoder one_line(1000);
  one_line.Feed("data: " + std::string(2000, 'x'));
  EXPECT_EQ(one_line.Next().error().code, ErrorCode::kProtocol);
  SseDecoder many_lines(1000);
  for (int i = 0; i < 200; i++) many_lines.Feed("data: 0123456789\n");
  EXPECT_EQ(many_lines.Next().error().code, ErrorCode::kProtocol);
}

}  // namespace
}  // namespace caisson::http
