// SHA-256, for digests of definitions, manifests and request bodies.
#pragma once

#include <string>
#include <string_view>

namespace caisson {

// 64 lower-case hex digits.
std::string Sha256Hex(std::string_view data);

}  // namespace caisson
