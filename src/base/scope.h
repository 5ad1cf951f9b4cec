// Whose data it is. No accessor of the store, a cache, a pool or an artifact exists without one.
#pragma once

#include <compare>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson {

// A set of key/value pairs such as {tenant: acme, user: 42}, from trusted context only (validated
// credentials or a trusted proxy's headers), never from a body. Two scopes are the same when their
// sets are; the empty set is the scope of a server without tenants.
// There is no constructor from text: a scope cannot be made up by accident.
class Scope {
 public:
  // Keys: 1–64 of [a-z0-9_-]; values: 1–256 bytes of visible ASCII; at most 8 pairs.
  static Result<Scope> FromTrusted(std::map<std::string, std::string> pairs);
  // The scope of a server that serves one tenant only, and of the command line.
  static Scope Root() { return Scope({}, "{}"); }

  const std::map<std::string, std::string>& pairs() const { return pairs_; }
  // Canonical JSON with sorted keys: the form that is stored, compared and indexed.
  const std::string& key() const { return key_; }
  // 16 hex digits for logs, labels and metrics, where values must not appear.
  std::string Fingerprint() const;

  bool operator==(const Scope& other) const { return key_ == other.key_; }
  auto operator<=>(const Scope& other) const { return key_ <=> other.key_; }

 private:
  Scope(std::map<std::string, std::string> pairs, std::string key)
      : pairs_(std::move(pairs)), key_(std::move(key)) {}
  std::map<std::string, std::string> pairs_;
  std::string key_;
};

}  // namespace caisson
