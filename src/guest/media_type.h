// What kind of content a file has: text or not, and its media type (RFC 6838). A guess from its
// first bytes and its name, as good as a caller needs to decide how to show it.
#pragma once

#include <cstddef>
#include <string_view>

namespace caisson::guest {

inline constexpr size_t kMediaHeadBytes = 8 * 1024;

struct MediaType {
  std::string_view name;  // static
  bool is_text = false;   // no NUL and no bad UTF-8 in the head
};

// `head`: the first kMediaHeadBytes of the file; `whole`: it has no more. Text is told apart by the
// extension of `name`; other content by its signature, then by the extension.
MediaType GuessMediaType(std::string_view name, std::string_view head, bool whole);

}  // namespace caisson::guest
