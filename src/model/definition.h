// A provider's definition: where a model is reached and by which protocol. What an API caller
// stores under /v1/providers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "json/json.h"

namespace caisson::model {

enum class Protocol : uint8_t { kOpenAi, kAnthropic };

struct ProviderDefinition {
  Protocol protocol = Protocol::kOpenAi;
  std::string base_url;  // scheme, host, port, path prefix; no trailing slash
  std::string model;     // used when the agent names none
  // Name of the environment variable of the server that holds the key; the key itself is never
  // stored. Empty: no key is sent (local servers).
  std::string api_key_env;
  Millis timeout{300'000};  // without a byte from the provider
  uint32_t max_retries = 2;
};

// Reads and checks; kInvalidArgument names the field. `json` is the whole definition.
Result<ProviderDefinition> ParseProvider(const json::object& definition);

}  // namespace caisson::model
