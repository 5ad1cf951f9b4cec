// Sessions, runs and sandboxes as clients see them.
#pragma once

#include "json/json.h"
#include "store/rows.h"

namespace caisson::api {

json::object ToJson(const store::SessionRow& row);
json::object ToJson(const store::RunRow& row);

}  // namespace caisson::api
