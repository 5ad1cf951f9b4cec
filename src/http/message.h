// HTTP/1.1 messages as values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::http {

struct Header {
  std::string name;
  std::string value;
};

// In order of arrival; names compare without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<Header> fields) : fields_(fields) {}

  void Add(std::string name, std::string value) {
    fields_.push_back({std::move(name), std::move(value)});
  }
  // The first one of that name; nothing if there is none.
  std::optional<std::string_view> Find(std::string_view name) const;
  size_t Count(std::string_view name) const;
  const std::vector<Header>& fields() const { return fields_; }

 private:
  std::vector<Header> fields_;
};

struct RequestHead {
  std::string method;
  std::string target;  // origin form: path and query, percent-encoded
  Headers headers;
};

struct ResponseHead {
  int status = 0;
  Headers headers;
};

// Enforced while bytes arrive.
struct ParseLimits {
  size_t header_bytes = 16 * 1024;
  std::optional<uint64_t> body_bytes;  // nothing: unlimited, for bodies that are streamed on
};

// The standard reason phrase; "Status" for an unknown one.
std::string_view ReasonPhrase(int status);

// Percent-encoding of everything but unreserved characters and '/', for paths; and back.
// Decoding gives nothing for a malformed escape.
std::string EncodePath(std::string_view raw);
// The same without '/': for one query value.
std::string EncodeQueryValue(std::string_view raw);
std::optional<std::string> PercentDecode(std::string_view text);

}  // namespace caisson::http
