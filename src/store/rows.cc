// Compiles store.h and its companions by themselves, too: interfaces must not lean on who includes
// them.
#include "store/rows.h"

#include "store/store.h"

namespace caisson::store {

std::string_view NameOf(DefinitionKind kind) {
  switch (kind) {
    case DefinitionKind::kAgent:
      return "agent";
    case DefinitionKind::kProvider:
      return "provider";
    case DefinitionKind::kSandboxProfile:
      return "sandbox_profile";
  }
  return "";
}

}  // namespace caisson::store
