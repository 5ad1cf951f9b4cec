#include "store/sqlite/database.h"

#include <sqlite3.h>

#include <cstdlib>
#include <utility>

namespace caisson::store::sqlite {
namespace {

Error SqliteError(sqlite3* handle, std::string_view tried) {
  int code = sqlite3_extended_errcode(handle);
  ErrorCode mapped = ErrorCode::kIo;
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      mapped = ErrorCode::kStoreBusy;
      break;
    case SQLITE_FULL:
      mapped = ErrorCode::kDiskFull;
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      mapped = ErrorCode::kStoreCorrupt;
      break;
    case SQLITE_CONSTRAINT:
      mapped = ErrorCode::kConflict;
      break;
    default:
      break;
  }
  return Error{mapped, "the store could not " + std::string(tried), sqlite3_errmsg(handle),
               std::nullopt};
}

}  // namespace

Statement::~Statement() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}
Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)), next_(other.next_) {}

void Statement::BindOne(std::string_view text) {
  // Transient: SQLite copies, so that temporaries may be bound. An empty view must not be null.
  sqlite3_bind_text64(statement_, next_++, text.data() == nullptr ? "" : text.data(), text.size(),
                      SQLITE_TRANSIENT, SQLITE_UTF8);
}
void Statement::BindOne(int64_t number) { sqlite3_bind_int64(statement_, next_++, number); }
void Statement::BindOne(std::nullptr_t) { sqlite3_bind_null(statement_, next_++); }

Result<bool> Statement::Step() {
  switch (sqlite3_step(statement_)) {
    case SQLITE_ROW:
      return true;
    case SQLITE_DONE:
      return false;
    default:
      return Fail(SqliteError(sqlite3_db_handle(statement_), "run a statement"));
  }
}

Result<void> Statement::Run() {
  CAISSON_TRY(Step());
  return {};
}

std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}
int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }
bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path, Mode mode) {
  sqlite3* handle = nullptr;
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |=
      mode == Mode::kReadWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  std::unique_ptr<Database> database(new Database(handle));
  if (code != SQLITE_OK) return Fail(SqliteError(handle, "open " + path));
  sqlite3_busy_timeout(handle, 5000);
  CAISSON_TRY(database->Execute(
      "PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -4096;"));
  return database;
}

Database::~Database() {
  for (auto& [sql, statement] : cache_) sqlite3_finalize(statement);
  sqlite3_close(handle_);
}

Result<void> Database::Execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
    return Fail(SqliteError(handle_, "run a statement"));
  }
  return {};
}

Statement Database::Prepare(std::string_view sql) {
  auto found = cache_.find(sql);
  if (found != cache_.end()) return Statement(found->second);
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  // The text is a literal of ours and the schema is checked at start: failing here is a fault of
  // the program that every test would hit.
  if (code != SQLITE_OK) {
    std::fprintf(stderr, "caisson: cannot prepare \"%.*s\": %s\n", static_cast<int>(sql.size()),
                 sql.data(), sqlite3_errmsg(handle_));
    std::abort();
  }
  cache_.emplace(sql, statement);
  return Statement(statement);
}

int64_t Database::Changes() const { return sqlite3_changes64(handle_); }

}  // namespace caisson::store::sqlite
