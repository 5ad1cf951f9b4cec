// A spec as JSON: what POST /v1/sandboxes takes, the ledger keeps and GET shows.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "json/json.h"
#include "json/reader.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// The profile's spec (`default` unless it is named), changed by what is there. What is wrong is
// told by `reader`'s Finish, by field; an unknown profile or name of a table is an error here.
Result<SandboxSpec> ReadSpec(json::ObjectReader& reader);

// What ReadSpec reads but for `env`, which may hold secrets, with every default written out; and
// the backend, which no caller chooses yet.
json::object SpecToJson(const SandboxSpec& spec);
// From the ledger, also by an earlier version: what it did not write is the default.
Result<SandboxSpec> SpecFromLedger(std::string_view text);

}  // namespace caisson::sandbox
