// The schema of the SQLite store, as numbered migrations.
#pragma once

#include "base/error.h"
#include "store/sqlite/database.h"

namespace caisson::store::sqlite {

// Brings the database to this program's version in one transaction. kStoreVersion when it was
// written by a newer program: nothing is changed then.
Result<void> Migrate(Database& database);

}  // namespace caisson::store::sqlite
