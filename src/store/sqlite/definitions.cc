#include <fmt/format.h>

#include "base/digest.h"
#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {
namespace {

DefinitionRow Read(const Statement& row, DefinitionKind kind) {
  return {kind,
          row.Text(0),
          row.Text(1),
          row.Text(2),
          static_cast<uint64_t>(row.Int(3)),
          TimeFrom(row.Int(4)),
          TimeFrom(row.Int(5))};
}

Error WrongRevision(DefinitionKind kind, const std::string& name, uint64_t is) {
  return Error{ErrorCode::kPreconditionFailed,
               is == 0 ? fmt::format("{} \"{}\" does not exist; create it with revision 0",
                                     NameOf(kind), name)
                       : fmt::format("{} \"{}\" has revision {}", NameOf(kind), name, is),
               {},
               std::nullopt};
}

}  // namespace

Result<DefinitionRow> PutDefinition(WriteContext& context, const Scope& scope, DefinitionKind kind,
                                    const std::string& name, const std::string& json,
                                    uint64_t expected_revision) {
  auto existing = GetDefinition(context.db, scope, kind, name);
  if (!existing && existing.error().code != ErrorCode::kNotFound) return existing;
  uint64_t revision = existing ? existing->revision : 0;
  if (revision != expected_revision) return Fail(WrongRevision(kind, name, revision));
  DefinitionRow row{kind,         name,
                    json,         Sha256Hex(json),
                    revision + 1, existing ? existing->created_at : context.now,
                    context.now};
  CAISSON_TRY(context.db
                  .Prepare("INSERT INTO definitions VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                           "ON CONFLICT (scope, kind, name) DO UPDATE SET json = excluded.json, "
                           "digest = excluded.digest, revision = excluded.revision, "
                           "updated_at = excluded.updated_at")
                  .Bind(scope.key(), NameOf(kind), row.name, row.json, row.digest, row.revision,
                        row.created_at.time_since_epoch().count(), context.now_us())
                  .Run());
  return row;
}

Result<DefinitionRow> GetDefinition(Database& db, const Scope& scope, DefinitionKind kind,
                                    const std::string& name) {
  Statement row = db.Prepare(
      "SELECT name, json, digest, revision, created_at, updated_at FROM definitions "
      "WHERE scope = ? AND kind = ? AND name = ?");
  CAISSON_ASSIGN(bool found, row.Bind(scope.key(), NameOf(kind), name).Step());
  if (!found) return Fail(NoSuch(NameOf(kind), name));
  return Read(row, kind);
}

Result<Page<DefinitionRow>> ListDefinitions(Database& db, const Scope& scope, DefinitionKind kind,
                                            const PageRequest& page) {
  CAISSON_TRY(CheckPage(page));
  Statement row = db.Prepare(
      "SELECT name, json, digest, revision, created_at, updated_at FROM definitions "
      "WHERE scope = ? AND kind = ? AND name > ? ORDER BY name LIMIT ?");
  row.Bind(scope.key(), NameOf(kind), page.cursor, page.limit + 1);
  return ReadPage<DefinitionRow>(
      row, page, [kind](const Statement& one) -> Result<DefinitionRow> { return Read(one, kind); },
      [](const DefinitionRow& last) { return last.name; });
}

Result<void> DeleteDefinition(WriteContext& context, const Scope& scope, DefinitionKind kind,
                              const std::string& name, uint64_t expected_revision) {
  CAISSON_ASSIGN(DefinitionRow row, GetDefinition(context.db, scope, kind, name));
  if (row.revision != expected_revision) return Fail(WrongRevision(kind, name, row.revision));
  return context.db.Prepare("DELETE FROM definitions WHERE scope = ? AND kind = ? AND name = ?")
      .Bind(scope.key(), NameOf(kind), name)
      .Run();
}

}  // namespace caisson::store::sqlite
