// caisson-guest, as this build made it: carried inside the server, so that it can be put into any
// sandbox.
#pragma once

#include <string_view>

namespace caisson::sandbox {

// The bytes of the static program.
std::string_view EmbeddedGuest();

}  // namespace caisson::sandbox
