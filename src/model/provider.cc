#include "model/provider.h"

#include "model/anthropic.h"
#include "model/openai.h"

namespace caisson::model {

std::string_view NameOf(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "end";
    case StopReason::kToolCalls:
      return "tool_calls";
    case StopReason::kLength:
      return "length";
    case StopReason::kRefused:
      return "refused";
    case StopReason::kOther:
      return "other";
  }
  return "other";
}

std::unique_ptr<Provider> MakeProvider(const ProviderDefinition& definition, std::string key,
                                       http::Connector& connector, const Clock& clock) {
  switch (definition.protocol) {
    case Protocol::kOpenAi:
      return MakeOpenAiProvider(definition, std::move(key), connector, clock);
    case Protocol::kAnthropic:
      return MakeAnthropicProvider(definition, std::move(key), connector, clock);
  }
  return nullptr;
}

}  // namespace caisson::model
