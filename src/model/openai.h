// OpenAI's Chat Completions, and the many servers that speak it (Ollama, vLLM, llama.cpp, …).
#pragma once

#include <memory>
#include <string>

#include "model/provider.h"

namespace caisson::model {

std::unique_ptr<Provider> MakeOpenAiProvider(const ProviderDefinition& definition, std::string key,
                                             http::Connector& connector, const Clock& clock);

}  // namespace caisson::model
