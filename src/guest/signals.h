// Signal names without "SIG".
#pragma once

#include <string>
#include <string_view>

namespace caisson::guest {

// "KILL"; "RTMIN+n" for the real-time ones.
std::string SignalName(int number);
// 0 for an unknown name. "TERM" and "SIGTERM" are the same.
int SignalNumber(std::string_view name);

}  // namespace caisson::guest
