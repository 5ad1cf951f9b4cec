// Anthropic's Messages.
#pragma once

#include <memory>
#include <string>

#include "model/provider.h"

namespace caisson::model {

std::unique_ptr<Provider> MakeAnthropicProvider(const ProviderDefinition& definition,
                                                std::string key, http::Connector& connector,
                                                const Clock& clock);

}  // namespace caisson::model
