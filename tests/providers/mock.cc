#include "mock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

namespace caisson::providers_test {
namespace {

std::string SourceDir() {
  const char* dir = ::getenv("CAISSON_SOURCE_DIR");
  return dir == nullptr ? "." : dir;
}

std::vector<std::string> Environment() {
  const char* path = ::getenv("PATH");
  return {std::string("PATH=") + (path == nullptr ? "/usr/bin:/bin" : path),
          "NODE_PATH=" + SourceDir() + "/build/providers/node_modules",
          std::string("MOCK_KEY=") + kKey};
}

}  // namespace

std::string Mock::Missing() {
  if (std::filesystem::exists(SourceDir() + "/build/providers/installed.json")) return "";
  return "the mock of the model providers is not installed: run tests/providers/install";
}

Mock::Mock()
    : service_("/usr/bin/env", {"node", SourceDir() + "/tests/providers/start.cjs"},
               Environment()) {
  if (service_.first_line().starts_with("http://")) return;
  service_.Wait();
  ADD_FAILURE() << "the mock of the model providers did not start: " << service_.error_output();
}

std::string Mock::BaseUrl(model::Protocol protocol) const {
  return service_.first_line() + (protocol == model::Protocol::kOpenAi ? "/v1" : "");
}

}  // namespace caisson::providers_test
