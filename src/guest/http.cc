#include "guest/http.h"

#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxChunkLine = 1024;

bool IsToken(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text) {
    bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!alphanumeric && std::string_view("!#$%&'*+-.^_`|~").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

// Visible text, spaces, tabs and bytes over 0x7F; no other control byte.
bool IsFieldText(std::string_view text) {
  for (char c : text) {
    auto byte = static_cast<uint8_t>(c);
    if ((byte < 0x20 && byte != '\t') || byte == 0x7F) return false;
  }
  return true;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

const std::string* FindIn(const std::vector<std::pair<std::string, std::string>>& list,
                          std::string_view name) {
  for (const auto& [key, value] : list) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 206:
      return "Partial Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 409:
      return "Conflict";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

}  // namespace

const std::string* HttpRequest::Header(std::string_view name) const { return FindIn(headers, name); }
const std::string* HttpRequest::Query(std::string_view name) const { return FindIn(query, name); }

void HttpParser::Reset() {
  state_ = State::kHeader;
  request_ = HttpRequest();
  line_.clear();
  remaining_ = 0;
  trailer_bytes_ = 0;
  body_ = {};
}

HttpParser::Event HttpParser::Broken(ErrorCode code, const char* message) {
  state_ = State::kBroken;
  error_ = Error{code, message, {}, std::nullopt};
  return Event::kError;
}

HttpParser::Event HttpParser::Next(std::string_view& input) {
  for (;;) {
    switch (state_) {
      case State::kHeader:
        return ReadHeader(input);
      case State::kLength:
      case State::kChunkData: {
        if (remaining_ == 0) {
          state_ = state_ == State::kLength ? State::kDone : State::kChunkEnd;
          continue;
        }
        if (input.empty()) return Event::kNeedMore;
        body_ = input.substr(0, remaining_);
        input.remove_prefix(body_.size());
        remaining_ -= body_.size();
        return Event::kBody;
      }
      case State::kChunkEnd:
        if (!ReadLine(input, 2)) {
          return state_ == State::kBroken ? Event::kError : Event::kNeedMore;
        }
        if (!line_.empty()) return Broken(ErrorCode::kMalformedRequest, "a chunk is too long");
        state_ = State::kChunkSize;
        continue;
      case State::kChunkSize: {
        Event event = ReadChunkSize(input);
        if (event == Event::kBody) continue;
        return event;
      }
      case State::kTrailer:
        return ReadTrailer(input);
      case State::kDone:
        return Event::kEnd;
      case State::kBroken:
        return Event::kError;
    }
  }
}

HttpParser::Event HttpParser::ReadHeader(std::string_view& input) {
  // The block is searched from a little before the new bytes: the end may straddle two reads.
  size_t seen = line_.size() < 3 ? 0 : line_.size() - 3;
  size_t take = input.size() < kMaxHeaderBytes + 4 ? input.size() : kMaxHeaderBytes + 4;
  size_t before = line_.size();
  line_.append(input.substr(0, take));
  size_t end = line_.find("\r\n\r\n", seen);
  if (end == std::string::npos) {
    input.remove_prefix(take);
    // A peer that ends its lines with LF alone would wait for an answer that never comes.
    for (size_t i = before; i < line_.size(); i++) {
      if (line_[i] == '\n' && (i == 0 || line_[i - 1] != '\r')) {
        return Broken(ErrorCode::kMalformedRequest, "a bare LF in the header");
      }
    }
    if (line_.size() > kMaxHeaderBytes) {
      return Broken(ErrorCode::kHeaderTooLarge, "the header exceeds 16384 bytes");
    }
    return Event::kNeedMore;
  }
  input.remove_prefix(end + 4 - before);
  if (end + 4 > kMaxHeaderBytes) {
    return Broken(ErrorCode::kHeaderTooLarge, "the header exceeds 16384 bytes");
  }
  line_.resize(end + 2);
  if (!ParseHeader(line_) || !Interpret()) return Event::kError;
  line_.clear();
  return Event::kHeader;
}

bool HttpParser::ParseHeader(std::string_view block) {
  bool first = true;
  while (!block.empty()) {
    size_t end = block.find("\r\n");
    std::string_view line = block.substr(0, end);
    block.remove_prefix(end + 2);
    if (!IsFieldText(line)) {
      Broken(ErrorCode::kMalformedRequest, "a control byte in the header");
      return false;
    }
    if (!(first ? ParseRequestLine(line) : ParseField(line))) return false;
    first = false;
  }
  return true;
}

bool HttpParser::ParseRequestLine(std::string_view line) {
  size_t space = line.find(' ');
  size_t last = line.rfind(' ');
  if (space == std::string_view::npos || last == space ||
      line.substr(last + 1) != "HTTP/1.1" || !IsToken(line.substr(0, space))) {
    Broken(ErrorCode::kMalformedRequest, "the request line is not METHOD TARGET HTTP/1.1");
    return false;
  }
  request_.method = std::string(line.substr(0, space));
  return ParseTarget(line.substr(space + 1, last - space - 1));
}

bool HttpParser::ParseTarget(std::string_view target) {
  auto bad = [this] {
    Broken(ErrorCode::kMalformedRequest, "the request target is malformed");
    return false;
  };
  if (target.empty() || target[0] != '/') return bad();
  for (char c : target) {
    if (static_cast<uint8_t>(c) <= 0x20 || c == '#') return bad();
  }
  size_t mark = target.find('?');
  auto path = PercentDecode(target.substr(0, mark));
  if (!path) return bad();
  request_.path = *std::move(path);
  std::string_view query =
      mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
  while (!query.empty()) {
    size_t end = query.find('&');
    std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (pair.empty()) continue;
    size_t equals = pair.find('=');
    auto key = PercentDecode(pair.substr(0, equals));
    auto value = PercentDecode(equals == std::string_view::npos ? std::string_view()
                                                                : pair.substr(equals + 1));
    if (!key || !value) return bad();
    request_.query.emplace_back(*std::move(key), *std::move(value));
  }
  return true;
}

bool HttpParser::ParseField(std::string_view line) {
  // A line that starts with white space would be a folded one; it has no token before its colon.
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    Broken(ErrorCode::kMalformedRequest, "a header line is malformed");
    return false;
  }
  std::string name(line.substr(0, colon));
  for (char& c : name) c = AsciiLower(c);
  request_.headers.emplace_back(std::move(name), std::string(Trim(line.substr(colon + 1))));
  return true;
}

bool HttpParser::Interpret() {
  auto bad = [this](const char* message) {
    Broken(ErrorCode::kMalformedRequest, message);
    return false;
  };
  constexpr std::string_view kOnce[] = {"content-length",    "transfer-encoding", "host",
                                        kHeaderAuthorization, kHeaderFence,       kHeaderDeadline,
                                        "expect",            "range"};
  for (std::string_view name : kOnce) {
    int count = 0;
    for (const auto& header : request_.headers) count += header.first == name ? 1 : 0;
    if (count > 1) return bad("a header that may occur once is repeated");
  }
  const std::string* length = request_.Header("content-length");
  const std::string* coding = request_.Header("transfer-encoding");
  if (length != nullptr && coding != nullptr) {
    return bad("both Content-Length and Transfer-Encoding");
  }
  state_ = State::kLength;
  if (length != nullptr) {
    request_.content_length = ParseDecimal(*length);
    if (!request_.content_length) return bad("Content-Length is not a number");
    remaining_ = *request_.content_length;
  } else if (coding != nullptr) {
    if (!EqualIgnoreCase(*coding, "chunked")) return bad("the transfer coding is unknown");
    request_.chunked = true;
    state_ = State::kChunkSize;
  }
  if (const std::string* connection = request_.Header("connection")) {
    request_.close = EqualIgnoreCase(*connection, "close");
  }
  if (const std::string* expect = request_.Header("expect")) {
    if (!EqualIgnoreCase(*expect, "100-continue")) return bad("the expectation is unknown");
    request_.expect_continue = true;
  }
  return true;
}

bool HttpParser::ReadLine(std::string_view& input, size_t limit) {
  // line_ ends with CR only while its LF is still to come.
  while (!input.empty()) {
    char c = input.front();
    input.remove_prefix(1);
    bool after_cr = !line_.empty() && line_.back() == '\r';
    if (after_cr != (c == '\n')) {
      Broken(ErrorCode::kMalformedRequest, "a bare CR or LF in a chunk line");
      return false;
    }
    if (after_cr) {
      line_.pop_back();
      return true;
    }
    line_ += c;
    if (line_.size() > limit) {
      Broken(ErrorCode::kMalformedRequest, "a chunk line is malformed or too long");
      return false;
    }
  }
  return false;
}

HttpParser::Event HttpParser::ReadChunkSize(std::string_view& input) {
  if (!ReadLine(input, kMaxChunkLine)) {
    return state_ == State::kBroken ? Event::kError : Event::kNeedMore;
  }
  std::string_view line = line_;
  std::string_view digits = line.substr(0, line.find(';'));  // extensions are ignored
  if (digits.empty() || digits.size() > 15 || !IsFieldText(line)) {
    return Broken(ErrorCode::kMalformedRequest, "the chunk size is malformed");
  }
  uint64_t size = 0;
  for (char c : digits) {
    char lower = AsciiLower(c);
    if (lower >= '0' && lower <= '9') {
      size = size * 16 + static_cast<uint64_t>(lower - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      size = size * 16 + static_cast<uint64_t>(lower - 'a' + 10);
    } else {
      return Broken(ErrorCode::kMalformedRequest, "the chunk size is malformed");
    }
  }
  line_.clear();
  remaining_ = size;
  state_ = size == 0 ? State::kTrailer : State::kChunkData;
  return size == 0 ? ReadTrailer(input) : Event::kBody;
}

HttpParser::Event HttpParser::ReadTrailer(std::string_view& input) {
  for (;;) {
    if (!ReadLine(input, kMaxHeaderBytes)) {
      return state_ == State::kBroken ? Event::kError : Event::kNeedMore;
    }
    if (line_.empty()) {
      state_ = State::kDone;
      return Event::kEnd;
    }
    trailer_bytes_ += line_.size() + 2;
    size_t colon = line_.find(':');
    if (trailer_bytes_ > kMaxHeaderBytes) {
      return Broken(ErrorCode::kHeaderTooLarge, "the trailer exceeds 16384 bytes");
    }
    if (colon == std::string::npos || !IsToken(std::string_view(line_).substr(0, colon)) ||
        !IsFieldText(line_)) {
      return Broken(ErrorCode::kMalformedRequest, "a trailer line is malformed");
    }
    line_.clear();
  }
}

std::string HttpResponseHead(int status, std::string_view content_type,
                             std::optional<uint64_t> length, bool close, std::string_view extra) {
  std::string head;
  head.reserve(160 + extra.size());
  head += "HTTP/1.1 ";
  AppendDecimal(head, status);
  head += ' ';
  head += ReasonPhrase(status);
  head += "\r\nContent-Type: ";
  head += content_type;
  if (length) {
    head += "\r\nContent-Length: ";
    AppendDecimal(head, static_cast<int64_t>(*length));
  } else {
    head += "\r\nTransfer-Encoding: chunked";
  }
  head += "\r\n";
  if (close) head += "Connection: close\r\n";
  head += extra;
  head += "\r\n";
  return head;
}

}  // namespace caisson::guest
