#include <fmt/format.h>

#include <map>

#include "json/json.h"

#include "store/sqlite/transactions.h"

namespace caisson::store::sqlite {

Error NoSuch(std::string_view what, std::string_view id) {
  return Error{ErrorCode::kNotFound,
               fmt::format("there is no {} \"{}\" in this scope", what, id),
               {},
               std::nullopt};
}

WallTime TimeFrom(int64_t micros) { return WallTime(Micros(micros)); }

Result<Scope> ScopeFromKey(const std::string& key) {
  auto object = json::ParseObject(key);
  std::map<std::string, std::string> pairs;
  bool good = object.has_value();
  if (good) {
    for (const auto& [name, text] : *object) {
      good = good && text.is_string();
      if (good) pairs.emplace(name, text.get_string());
    }
  }
  if (!good) return Fail(ErrorCode::kStoreCorrupt, "the store holds an invalid scope", key);
  return Scope::FromTrusted(std::move(pairs));
}

Result<void> CheckPage(const PageRequest& page) {
  if (page.limit >= 1 && page.limit <= 1000) return {};
  return Fail(ErrorCode::kInvalidArgument, "\"limit\" is not between 1 and 1000");
}

Result<std::string> UseIdempotency(WriteContext& context, const Scope& scope, std::string_view kind,
                                   const Idempotency& idempotency, const std::string& result) {
  if (idempotency.key.empty()) return std::string();
  if (idempotency.key.size() > 200) {
    return Fail(ErrorCode::kInvalidArgument, "an idempotency key has at most 200 bytes");
  }
  constexpr int64_t kKeptMicros = 24ll * 3600 * 1'000'000;
  CAISSON_TRY(context.db
                  .Prepare("DELETE FROM idempotency WHERE scope = ? AND kind = ? AND key = ? "
                           "AND created_at < ?")
                  .Bind(scope.key(), kind, idempotency.key, context.now_us() - kKeptMicros)
                  .Run());
  Statement find = context.db.Prepare(
      "SELECT body_digest, result FROM idempotency WHERE scope = ? AND kind = ? AND key = ?");
  CAISSON_ASSIGN(bool found, find.Bind(scope.key(), kind, idempotency.key).Step());
  if (found) {
    if (find.Text(0) == idempotency.body_digest) return find.Text(1);
    return Fail(ErrorCode::kIdempotencyMismatch,
                "this idempotency key was used with another body; use a new key");
  }
  CAISSON_TRY(context.db.Prepare("INSERT INTO idempotency VALUES (?, ?, ?, ?, ?, ?)")
                  .Bind(scope.key(), kind, idempotency.key, idempotency.body_digest, result,
                        context.now_us())
                  .Run());
  return std::string();
}

}  // namespace caisson::store::sqlite
