#include "model/definition.h"

#include "json/reader.h"

namespace caisson::model {
namespace {

// http or https, a host, no credentials, query or fragment.
bool GoodUrl(std::string_view url) {
  size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return false;
  std::string_view name = url.substr(0, scheme);
  std::string_view rest = url.substr(scheme + 3);
  if (name != "http" && name != "https") return false;
  return !rest.empty() && rest[0] != '/' && rest.find_first_of("@?# \t\r\n") == rest.npos;
}

bool GoodVariable(std::string_view name) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  return name.size() <= 128 && name.find_first_not_of(kAllowed) == name.npos;
}

}  // namespace

Result<ProviderDefinition> ParseProvider(const json::object& definition) {
  json::ObjectReader reader(definition);
  ProviderDefinition provider;
  auto protocol = reader.Choice("protocol", {"openai", "anthropic"});
  if (!protocol.has_value()) reader.Wrong("protocol", "is required: \"openai\" or \"anthropic\"");
  bool anthropic = protocol == "anthropic";
  provider.protocol = anthropic ? Protocol::kAnthropic : Protocol::kOpenAi;
  provider.base_url =
      reader.String("base_url")
          .value_or(anthropic ? "https://api.anthropic.com" : "https://api.openai.com/v1");
  while (provider.base_url.ends_with('/')) provider.base_url.pop_back();
  if (!GoodUrl(provider.base_url)) {
    reader.Wrong("base_url", "must be an http or https URL without credentials, query or fragment");
  }
  provider.model = reader.String("model").value_or("");
  provider.api_key_env = reader.String("api_key_env").value_or("");
  if (!GoodVariable(provider.api_key_env)) {
    reader.Wrong("api_key_env", "must be the name of an environment variable");
  }
  provider.timeout =
      Millis(reader.Int("timeout_ms", 1'000, 3'600'000).value_or(provider.timeout.count()));
  provider.max_retries =
      static_cast<uint32_t>(reader.Int("max_retries", 0, 10).value_or(provider.max_retries));
  (void)reader.String("description");
  CAISSON_TRY(reader.Finish(json::ObjectReader::Unknown::kRefuse));
  return provider;
}

}  // namespace caisson::model
