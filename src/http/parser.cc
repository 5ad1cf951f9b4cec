#include "http/parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>
#include <variant>

namespace caisson::http {
namespace {

namespace beast = boost::beast;
using boost::system::error_code;
using BeastView = beast::string_view;

constexpr std::string_view kEmptyBody = "0\r\n\r\n";  // chunked

std::string ToString(BeastView text) { return {text.data(), text.size()}; }

// Collects what Beast finds. kIsRequest chooses the start line.
template <bool kIsRequest>
class Collector final : public beast::http::basic_parser<kIsRequest> {
 public:
  RequestHead request;
  ResponseHead response;
  std::string body;
  // Why a message is refused that Beast would have accepted.
  const char* refusal = nullptr;
  bool expects_continue = false;
  uint64_t chunk_left = 0;  // of the current chunk

 private:
  Headers& headers() {
    if constexpr (kIsRequest) {
      return request.headers;
    } else {
      return response.headers;
    }
  }

  void on_request_impl(beast::http::verb, BeastView method, BeastView target, int version,
                       error_code& error) override {
    request.method = ToString(method);
    request.target = ToString(target);
    if (version != 11) Refuse("only HTTP/1.1 is served", error);
  }
  void on_response_impl(int status, BeastView, int, error_code&) override {
    response.status = status;
  }
  void on_field_impl(beast::http::field field, BeastView name, BeastView value,
                     error_code& error) override {
    // Of a trailer: dropped. Nobody asked for it, and a proxy in front has checked headers only.
    if (this->is_header_done()) return;
    if (field == beast::http::field::content_length) {
      if (headers().Find("content-length").has_value()) {
        return Refuse("Content-Length is repeated", error);
      }
      // Beast reads a list of equal numbers as one; others take the first, or refuse.
      if (value.empty() || value.find_first_not_of("0123456789") != BeastView::npos) {
        return Refuse("Content-Length is not a number", error);
      }
    }
    if (field == beast::http::field::transfer_encoding &&
        (headers().Find("transfer-encoding").has_value() || !beast::iequals(value, "chunked"))) {
      return Refuse("the only transfer coding is \"chunked\"", error);
    }
    if (field == beast::http::field::expect && beast::iequals(value, "100-continue")) {
      expects_continue = true;
    }
    headers().Add(ToString(name), ToString(value));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(BeastView bytes, error_code&) override {
    body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t size, BeastView, error_code&) override {
    chunk_left = size;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, BeastView bytes, error_code&) override {
    body.append(bytes.data(), bytes.size());
    chunk_left -= bytes.size();
    return bytes.size();
  }
  void on_finish_impl(error_code&) override {}

  void Refuse(const char* why, error_code& error) {
    refusal = why;
    error = beast::http::error::bad_field;
  }
};

struct RawHeader {
  size_t bytes = 0;             // with the empty line; 0: its end has not come
  const char* fault = nullptr;  // why it is none
};

// The raw header must consist of lines ended by CRLF, none of them folded: Beast unfolds and is
// lenient with line ends in places, and a proxy in front may see another message.
RawHeader FindHeader(std::string_view data) {
  for (size_t i = 0; i < data.size(); i++) {
    auto byte = static_cast<unsigned char>(data[i]);
    if (byte >= ' ' || byte == '\t') continue;
    if (byte == '\n' && (i == 0 || data[i - 1] != '\r'))
      return {0, "a header line ends in a bare LF"};
    if (byte == '\n') continue;
    if (byte != '\r') return {0, "the header has a control character"};
    if (i + 1 >= data.size()) continue;
    if (data[i + 1] != '\n') return {0, "a header line has a bare CR"};
    if (i + 2 < data.size() && (data[i + 2] == ' ' || data[i + 2] == '\t')) {
      return {0, "a header line is folded"};
    }
    if (data.substr(i, 4) == "\r\n\r\n") return {i + 4, nullptr};
  }
  return {};
}

}  // namespace

struct Parser::Impl {
  std::variant<Collector<true>, Collector<false>> parser;
  size_t header_limit = 0;

  template <typename Call>
  auto Visit(Call call) {
    return std::visit(call, parser);
  }
  bool is_request() const { return parser.index() == 0; }
  Error Malformed(std::string why) const {
    return Error{is_request() ? ErrorCode::kMalformedRequest : ErrorCode::kProtocol,
                 std::move(why),
                 {},
                 std::nullopt};
  }
  Error TooLarge(const std::string& what) const {
    return Error{ErrorCode::kHeaderTooLarge,
                 what + " is larger than " + std::to_string(header_limit) + " bytes",
                 {},
                 std::nullopt};
  }
  Error Explain(error_code error, const char* refusal) const {
    if (refusal != nullptr) return Malformed(refusal);
    if (error == beast::http::error::header_limit) return TooLarge("the header");
    if (error == beast::http::error::body_limit) {
      return Error{ErrorCode::kBodyTooLarge, "the body is larger than its limit", {}, std::nullopt};
    }
    if (error == beast::http::error::partial_message ||
        error == beast::http::error::end_of_stream) {
      return Error{ErrorCode::kConnectionLost,
                   "the connection ended in the middle of a message",
                   {},
                   std::nullopt};
    }
    return Malformed("the HTTP message is malformed: " + error.message());
  }
};

Parser::Parser(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Parser::Parser(Parser&&) noexcept = default;
Parser& Parser::operator=(Parser&&) noexcept = default;
Parser::~Parser() = default;

namespace {
template <typename P>
void Configure(P& parser, const ParseLimits& limits) {
  parser.header_limit(static_cast<uint32_t>(limits.header_bytes));
  if (limits.body_bytes.has_value()) {
    parser.body_limit(*limits.body_bytes);
  } else {
    parser.body_limit(boost::none);
  }
}
}  // namespace

Parser Parser::Request(ParseLimits limits) {
  auto impl = std::make_unique<Impl>();
  impl->header_limit = limits.header_bytes;
  Configure(std::get<0>(impl->parser), limits);
  return Parser(std::move(impl));
}

Parser Parser::Response(ParseLimits limits, bool no_body) {
  auto impl = std::make_unique<Impl>();
  impl->header_limit = limits.header_bytes;
  auto& parser = impl->parser.emplace<1>();
  Configure(parser, limits);
  parser.skip(no_body);
  return Parser(std::move(impl));
}

Result<size_t> Parser::Feed(std::string_view data) {
  return impl_->Visit([&](auto& parser) -> Result<size_t> {
    // Beast gets the header whole: in parts it would neither bound all of it, nor would we know of
    // the rest where it ends.
    if (!parser.is_header_done()) {
      RawHeader header = FindHeader(data);
      if (header.fault != nullptr) return Fail(impl_->Malformed(header.fault));
      size_t bytes = header.bytes == 0 ? data.size() : header.bytes;
      if (bytes > impl_->header_limit) return Fail(impl_->TooLarge("the header"));
      if (header.bytes == 0) return size_t{0};
    }
    size_t taken = 0;
    // Beast stops after each part (header, chunk header, chunk, trailer); the caller wants all that
    // is there.
    while (taken < data.size() && !parser.is_done()) {
      std::string_view left = data.substr(taken);
      bool between_chunks = parser.is_header_done() && parser.chunked() && parser.chunk_left == 0;
      // Beast asserts that it does not see the beginning of an empty body twice.
      if (between_chunks && left.size() < kEmptyBody.size() && left[0] == '0') break;
      error_code error;
      size_t used = parser.put(boost::asio::buffer(left), error);
      taken += used;
      bool incomplete = error == beast::http::error::need_more;
      // Beast bounds the header only. A chunk's header and a trailer come whole, too.
      if (between_chunks && (incomplete ? left.size() : used) > impl_->header_limit) {
        return Fail(impl_->TooLarge("what stands between the chunks of the body"));
      }
      if (incomplete && parser.is_header_done()) break;
      if (error) return Fail(impl_->Explain(error, parser.refusal));
      if (used == 0) break;
    }
    return taken;
  });
}

Result<void> Parser::FeedEnd() {
  return impl_->Visit([&](auto& parser) -> Result<void> {
    error_code error = beast::http::error::partial_message;
    if (parser.is_header_done()) parser.put_eof(error);
    if (error) return Fail(impl_->Explain(error, nullptr));
    return {};
  });
}

bool Parser::head_done() const {
  return impl_->Visit([](auto& parser) { return parser.is_header_done(); });
}
bool Parser::done() const {
  return impl_->Visit([](auto& parser) { return parser.is_done(); });
}
bool Parser::keep_alive() const {
  return impl_->Visit([](auto& parser) { return parser.keep_alive(); });
}
RequestHead& Parser::request_head() { return std::get<0>(impl_->parser).request; }
ResponseHead& Parser::response_head() { return std::get<1>(impl_->parser).response; }
bool Parser::expects_continue() const {
  return impl_->Visit([](auto& parser) { return parser.expects_continue; });
}
std::string Parser::TakeBody() {
  return impl_->Visit([](auto& parser) { return std::exchange(parser.body, {}); });
}

}  // namespace caisson::http
