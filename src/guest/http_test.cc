#include "guest/http.h"

#include <gtest/gtest.h>

namespace caisson::guest {
namespace {

using Event = HttpParser::Event;

struct Outcome {
  Event last = Event::kNeedMore;
  std::string body;
  std::string rest;
};

// Feeds the bytes in pieces of `step`, up to the end of one message.
Outcome Feed(HttpParser& parser, std::string_view bytes, size_t step) {
  Outcome outcome;
  while (!bytes.empty()) {
    std::string_view piece = bytes.substr(0, step);
    bytes.remove_prefix(piece.size());
    for (;;) {
      outcome.last = parser.Next(piece);
      if (outcome.last == Event::kBody) outcome.body += parser.body();
      if (outcome.last == Event::kNeedMore) break;
      if (outcome.last == Event::kEnd || outcome.last == Event::kError) {
        outcome.rest = std::string(piece) + std::string(bytes);
        return outcome;
      }
    }
  }
  return outcome;
}

TEST(HttpTest, WholeMessagesInAnyPieces) {
  const std::string messages[] = {
      "GET /a%20b?x=1&y=%ff&z HTTP/1.1\r\nHost: h\r\n\r\n",
      "POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
      "POST /p HTTP/1.1\r\nTransfer-Encoding: "
      "Chunked\r\n\r\n3\r\nhel\r\n2;ext=\"v\"\r\nlo\r\n0\r\nTrailer: x\r\n\r\n",
  };
  for (const std::string& message : messages) {
    for (size_t step : {1U, 2U, 3U, 7U, 1000U}) {
      HttpParser parser;
      Outcome outcome = Feed(parser, message + "NEXT", step);
      EXPECT_EQ(outcome.last, Event::kEnd) << message << step;
      EXPECT_EQ(outcome.rest, "NEXT");
      if (message[0] == 'P') EXPECT_EQ(outcome.body, "hello");
    }
  }
  HttpParser parser;
  Feed(parser, messages[0], 1000);
  EXPECT_EQ(parser.request().path, "/a b");
  EXPECT_EQ(*parser.request().Query("x"), "1");
  EXPECT_EQ(*parser.request().Query("y"), "\xff");
  EXPECT_EQ(*parser.request().Query("z"), "");
  EXPECT_EQ(*parser.request().Header("host"), "h");
  parser.Reset();
  EXPECT_TRUE(parser.idle());
  EXPECT_EQ(Feed(parser, messages[1], 4).last, Event::kEnd);
}

TEST(HttpTest, SmugglingAndMalformedMessages) {
  const std::string bad[] = {
      "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 0x1\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length:\r\n\r\n",
      "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
      "GET / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
      "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
      "GET / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
      "GET / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
      "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
      "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
      "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
      "GET / HTTP/1.1\nA: b\n\n",
      std::string("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 27),
      "GET / HTTP/1.1\r\n: b\r\n\r\n",
      "GET / HTTP/1.1\r\nno colon\r\n\r\n",
      "GET / HTTP/1.0\r\n\r\n",
      "GET / HTTP/2.0\r\n\r\n",
      "GET  / HTTP/1.1\r\n\r\n",
      "GET /\r\n\r\n",
      "GET http://h/ HTTP/1.1\r\n\r\n",
      "GET /%zz HTTP/1.1\r\n\r\n",
      "G@T / HTTP/1.1\r\n\r\n",
      "\r\nGET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n",
      "GET / HTTP/1.1\r\nExpect: more\r\n\r\n",
  };
  for (const std::string& message : bad) {
    for (size_t step : {1U, 1000U}) {
      HttpParser parser;
      Outcome outcome = Feed(parser, message, step);
      EXPECT_EQ(outcome.last, Event::kError) << message;
      EXPECT_EQ(parser.error().code, ErrorCode::kMalformedRequest) << message;
      std::string_view more = "GET / HTTP/1.1\r\n\r\n";
      EXPECT_EQ(parser.Next(more), Event::kError);  // for good
    }
  }
}

TEST(HttpTest, BadChunks) {
  for (const char* chunks :
       {"\r\n", "g\r\n", "-1\r\n", "+1\r\n", " 1\r\n", "0x1\r\n", "1 \r\n", "1\n", "1\r1",
        "1\r\nab\r\n", "1\r\na\n", "1\r\naXX", "fffffffffffffffff\r\n", "0\r\nbad trailer\r\n\r\n",
        "0\r\n x: y\r\n\r\n"}) {
    for (size_t step : {1U, 1000U}) {
      HttpParser parser;
      std::string message =
          std::string("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") + chunks;
      EXPECT_EQ(Feed(parser, message, step).last, Event::kError) << chunks;
    }
  }
}

TEST(HttpTest, Limits) {
  for (size_t step : {1U, 100'000U}) {
    HttpParser parser;
    Feed(parser, "GET / HTTP/1.1\r\nA: " + std::string(20'000, 'a'), step);
    EXPECT_EQ(parser.error().code, ErrorCode::kHeaderTooLarge);
  }
  HttpParser fits;
  std::string head = "GET / HTTP/1.1\r\nA: ";
  head += std::string(16 * 1024 - head.size() - 4, 'a') + "\r\n\r\n";
  EXPECT_EQ(Feed(fits, head, 1000).last, Event::kEnd);
  HttpParser trailers;
  std::string endless = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
  for (int i = 0; i < 2000; i++) endless += "Name: value\r\n";
  EXPECT_EQ(Feed(trailers, endless, 1000).last, Event::kError);
  HttpParser extension;
  EXPECT_EQ(
      Feed(extension,
           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'e'), 1000)
          .last,
      Event::kError);
}

TEST(HttpTest, ResponseHead) {
  EXPECT_EQ(HttpResponseHead(404, "application/json", 2, true, "X: y\r\n"),
            "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: "
            "2\r\nConnection: close\r\nX: y\r\n\r\n");
}

}  // namespace
}  // namespace caisson::guest
