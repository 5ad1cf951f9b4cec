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

// Where the header ends, and how long it is, does not depend on the pieces in which it comes: here
// each ends in the first byte of a line.
TEST(Parser, AHeaderThatComesByLinesIsTheSame) {
  Parser parser = Parser::Request({});
  std::string buffer;
  for (const char* piece :
       {"POST / HTTP/1.1\r\nH", "ost: h\r\nC", "ontent-Length: 6\r\n\r", "\na\nb\rc\n"}) {
    buffer += piece;
    auto taken = parser.Feed(buffer);
    ASSERT_TRUE(taken.has_value()) << taken.error().ToString();
    buffer.erase(0, *taken);
  }
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(parser.TakeBody(), "a\nb\rc\n");

  Parser endless = Parser::Request({.header_bytes = 1000, .body_bytes = {}});
  buffer = "GET / HTTP/1.1\r\nA";
  Result<size_t> taken = 0;
  for (int i = 0; i < 1000 && taken; i++) {
    taken = endless.Feed(buffer);
    if (taken) buffer.erase(0, *taken);
    buffer += ": b\r\nA";
  }
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::kHeaderTooLarge);
}

// A proxy in front checks and removes headers; what comes behind the body passes it by.
TEST(Parser, ATrailerIsNoHeader) {
  const std::string message =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
      "X-Caisson-Scope-Tenant: other\r\nHost: evil\r\nExpect: 100-continue\r\n\r\n";
  for (size_t step : {size_t{1}, message.size()}) {
    Parser parser = Parser::Request({});
    EXPECT_EQ(FeedAll(parser, message, step).value(), "hi");
    EXPECT_TRUE(parser.done());
    EXPECT_EQ(parser.request_head().headers.fields().size(), 2u);
    EXPECT_EQ(parser.request_head().headers.Find("host"), "h");
    EXPECT_FALSE(parser.expects_continue());
  }
}

TEST(Parser, BoundsWhatStandsBetweenChunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string much(1000, 'x');
  for (const std::string& body : {
           "1;" + much + "\r\na\r\n0\r\n\r\n",
           "1\r\na\r\n0;" + much + "\r\n\r\n",
           "1\r\na\r\n0\r\nX: " + much + "\r\n\r\n",
           std::string(1000, '0') + "1\r\na\r\n0\r\n\r\n",
           "1;" + much,  // and no end of it
           "0\r\nX: " + much,
       }) {
    for (size_t step : {size_t{1}, size_t{100}, head.size() + body.size()}) {
      Parser parser = Parser::Request({.header_bytes = 500, .body_bytes = {}});
      auto read = FeedAll(parser, head + body, step);
      ASSERT_FALSE(read.has_value()) << body << " step " << step;
      EXPECT_EQ(read.error().code, ErrorCode::kHeaderTooLarge) << read.error().ToString();
      Parser generous = Parser::Request({.header_bytes = 2000, .body_bytes = {}});
      EXPECT_TRUE(FeedAll(generous, head + body, step).has_value()) << body << " step " << step;
    }
  }
}

TEST(Parser, ReadsAnEmptyChunkedBodyAtAnyCut) {
  for (const char* end : {"0\r\n\r\n", "000\r\n\r\n", "0;a=b\r\nT: 1\r\n\r\n"}) {
    for (size_t step : {size_t{1}, size_t{2}, size_t{3}, size_t{100}}) {
      Parser parser = Parser::Request({});
      EXPECT_EQ(FeedAll(parser,
                        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" +
                            std::string(end),
                        step)
                    .value(),
                "");
      EXPECT_TRUE(parser.done()) << end << " step " << step;
    }
  }
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
