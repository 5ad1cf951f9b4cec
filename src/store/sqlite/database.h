// SQLite behind RAII: connections and statements. Nothing outside store/sqlite includes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace caisson::store::sqlite {

// A prepared statement with its current row. Bind in order, Step, read columns. Not thread-safe.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  // Resets and clears the bindings, so that the connection's cache can hand it out again.
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;

  template <typename... Values>
  Statement& Bind(const Values&... values) {
    (BindOne(values), ...);
    return *this;
  }
  // True: a row is there. kStoreBusy, kDiskFull, kStoreCorrupt, kConflict (a constraint), kIo.
  Result<bool> Step();
  // For statements without rows.
  Result<void> Run();

  std::string Text(int column) const;
  int64_t Int(int column) const;
  bool IsNull(int column) const;

 private:
  void BindOne(std::string_view text);
  void BindOne(const std::string& text) { BindOne(std::string_view(text)); }
  void BindOne(const char* text) { BindOne(std::string_view(text)); }
  void BindOne(int64_t number);
  void BindOne(uint64_t number) { BindOne(static_cast<int64_t>(number)); }
  void BindOne(uint32_t number) { BindOne(static_cast<int64_t>(number)); }
  void BindOne(int number) { BindOne(static_cast<int64_t>(number)); }
  void BindOne(std::nullptr_t);

  sqlite3_stmt* statement_;
  int next_ = 1;
};

// One connection, used by one thread.
class Database {
 public:
  enum class Mode : uint8_t { kReadWrite, kReadOnly };
  static Result<std::unique_ptr<Database>> Open(const std::string& path, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Several statements without parameters, as in migrations.
  Result<void> Execute(const std::string& sql);
  // Prepared once a connection; `sql` must be a literal (it is the cache's key).
  Statement Prepare(std::string_view sql);
  // Rows changed by the last statement.
  int64_t Changes() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::map<std::string_view, sqlite3_stmt*> cache_;
};

}  // namespace caisson::store::sqlite
