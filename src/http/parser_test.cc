#include "http/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace caisson::http {
namespace {

// Feeds `text` in pieces of `step` bytes, as a network would.
Result<std::string> FeedAll(Parser& parser, const std::string& text, size_t step) {
  std::string buffer;
  std::string body;
  for (size_t i = 0; i < text.size() && !parser.done(); i += step) {
    buffer += text.substr(i, step);
    CAISSON_ASSIGN(size_t taken, parser.Feed(buffer));
    buffer.erase(0, taken);
    body += parser.TakeBody();
  }
  return body;
}

constexpr const char* kChunked =
    "POST /v1/x?a=b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: t\r\n\r\n";

TEST(Parser, ReadsARequestAtAnyCut) {
  for (size_t step = 1; step < 40; step++) {
    Parser parser = Parser::Request({});
    auto body = FeedAll(parser, kChunked, step);
    ASSERT_TRUE(body.has_value()) << body.error().ToString() << " step " << step;
    EXPECT_EQ(*body, "hello world");
    EXPECT_TRUE(parser.done());
    EXPECT_TRUE(parser.keep_alive());
    EXPECT_EQ(parser.request_head().method, "POST");
    EXPECT_EQ(parser.request_head().target, "/v1/x?a=b");
    EXPECT_EQ(parser.request_head().headers.Find("HOST"), "h");
  }
}

TEST(Parser, ReadsAResponseWithoutLengthToTheEnd) {
  Parser parser = Parser::Response({}, false);
  EXPECT_EQ(FeedAll(parser, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc", 7).value(), "abc");
  EXPECT_FALSE(parser.done());
  EXPECT_TRUE(parser.FeedEnd().has_value());
  EXPECT_TRUE(parser.done());
  EXPECT_FALSE(parser.keep_alive());
}

TEST(Parser, ACutResponseIsALostConnection) {
  Parser parser = Parser::Response({}, false);
  EXPECT_TRUE(FeedAll(parser, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 100).has_value());
  EXPECT_EQ(parser.FeedEnd().error().code, ErrorCode::kConnectionLost);
}

TEST(Parser, LeavesTheNextMessageAlone) {
  Parser parser = Parser::Request({});
  std::string two = "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n";
  EXPECT_EQ(parser.Feed(two).value(), two.size() / 2);
  EXPECT_TRUE(parser.done());
}

// Each of these is read differently by some proxy or server.
TEST(Parser, RefusesWhatCouldSmuggleARequest) {
  const std::vector<std::string> messages = {
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "5\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tfolded\r\n\r\n",
      "GET / HTTP/1.1\nHost: h\n\n",
      "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
      "GET / HTTP/1.1\r\nHo st: h\r\n\r\n",
      "GET / HTTP/1.1\r\n: h\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nHost: h\0x\r\n\r\n", 30),
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
      "GET / HTTP/1.0\r\nHost: h\r\n\r\n",
      "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
      "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
  };
  for (const std::string& message : messages) {
    for (size_t step : {size_t{1}, message.size()}) {
      Parser parser = Parser::Request({});
      auto body = FeedAll(parser, message, step);
      EXPECT_FALSE(body.has_value()) << message << " step " << step;
      if (!body) {
        EXPECT_EQ(body.error().code, ErrorCode::kMalformedRequest) << body.error().ToString();
      }
    }
  }
}

TEST(Parser, HoldsItsLimits) {
  Parser header = Parser::Request({.header_bytes = 1000, .body_bytes = {}});
  std::string long_header = "GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n";
  EXPECT_EQ(FeedAll(header, long_header, 100).error().code, ErrorCode::kHeaderTooLarge);

  Parser body = Parser::Request({.header_bytes = 1000, .body_bytes = 10});
  EXPECT_EQ(
      FeedAll(body, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n", 1000).error().code,
      ErrorCode::kBodyTooLarge);

  Parser chunked = Parser::Request({.header_bytes = 1000, .body_bytes = 10});
  EXPECT_EQ(FeedAll(chunked, kChunked, 1000).error().code, ErrorCode::kBodyTooLarge);
}

TEST(Parser, SeesExpectContinue) {
  Parser parser = Parser::Request({});
  ASSERT_TRUE(
      parser.Feed("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
          .has_value());
  EXPECT_TRUE(parser.head_done());
  EXPECT_TRUE(parser.expects_continue());
}

TEST(Percent, RoundTripsAnyByte) {
  std::string all;
  for (int i = 0; i < 256; i++) all += static_cast<char>(i);
  EXPECT_EQ(PercentDecode(EncodeQueryValue(all)), all);
  EXPECT_EQ(PercentDecode(EncodePath("/a b/é")), "/a b/é");
  EXPECT_EQ(EncodePath("/a b"), "/a%20b");
  for (const char* bad : {"%", "%1", "%zz", "a%2"}) EXPECT_EQ(PercentDecode(bad), std::nullopt);
}

}  // namespace
}  // namespace caisson::http
