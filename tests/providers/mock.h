// The mock of the model providers (npm: @copilotkit/aimock), with the answers in fixtures.json. It
// chooses an answer by the last message of the user.
#pragma once

#include <memory>
#include <string>

#include "model/definition.h"
#include "program.h"

namespace caisson::providers_test {

inline constexpr const char* kKey = "the-key";  // the one it takes

class Mock {
 public:
  // Empty when it can be started here, else what is missing.
  static std::string Missing();
  Mock();
  // What a provider's definition says.
  std::string BaseUrl(model::Protocol protocol) const;

 private:
  program_test::Service service_;
};

}  // namespace caisson::providers_test
