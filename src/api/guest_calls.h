// Passing a request on to a sandbox's guest: its calls (docs/guest-protocol.md), scoped and
// authenticated by the server, and streamed where they are large.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "api/context.h"
#include "sandbox/guest_client.h"

namespace caisson::api {

inline constexpr Millis kGuestCallTime{30'000};
inline constexpr Millis kTransferTime{600'000};

// kNoBackend where no sandboxes can be made.
Result<sandbox::Manager*> Sandboxes(Context& context);
// `time` from now, and no longer than the client stays.
Until Within(Context& context, Millis time);
// As long as a guest's stream shows signs of life.
Until WhileGuestLives(Context& context);
// Begins an answer of Server-Sent Events.
Task<Result<void>> StartEvents(Context& context);
// The guest of the sandbox in the request's path.
Task<Result<std::shared_ptr<sandbox::GuestClient>>> OpenGuest(Context& context);

// The query parameters that a call knows: static arrays, since they outlive the function that names
// them (a task starts later). Any other is refused by name.
using Parameters = std::span<const std::string_view>;

// JSON or nothing in, JSON out. `path` is the guest's.
Task<Result<Reply>> PassJson(Context& context, std::string method, std::string path,
                             Parameters parameters);
// Nothing or JSON in, a body of any length out, with its description in a header.
Task<Result<Reply>> PassContent(Context& context, std::string method, std::string path,
                                Parameters parameters);
// Nothing in; changes of files out, as Server-Sent Events, until the client leaves.
Task<Result<Reply>> PassWatch(Context& context, Parameters parameters);
// A body of any length in, JSON out.
Task<Result<Reply>> PassUpload(Context& context, std::string method, std::string path,
                               Parameters parameters);

}  // namespace caisson::api
