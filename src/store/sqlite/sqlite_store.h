// The embedded store: one SQLite file, for one server.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/random.h"
#include "store/store.h"

namespace caisson::store::sqlite {

struct Options {
  std::string path;  // of the database file; "-wal", "-shm" and ".lock" stand beside it
  // False: a power failure may lose the last moments (never consistency).
  bool durable = true;
};

// Opens, creates or migrates. kDataDirLocked when another process has it open; kStoreVersion when a
// newer program wrote it. `clock` and `random` outlive the store.
Result<std::unique_ptr<Store>> OpenSqliteStore(const Options& options, const Clock& clock,
                                               Random& random);

}  // namespace caisson::store::sqlite
