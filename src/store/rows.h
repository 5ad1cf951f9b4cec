// What the store gives back: one struct a kind of row, values only. Every one belongs to a Scope,
// which is not repeated in it: nobody gets a row without having named its scope.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "store/states.h"

namespace caisson::store {

// A definition is what an API caller describes once and names afterwards. Its JSON was validated by
// the part that owns the kind; the store keeps it as canonical JSON with its digest.
enum class DefinitionKind : uint8_t { kAgent, kProvider, kSandboxProfile };
std::string_view NameOf(DefinitionKind kind);  // "agent", "provider", "sandbox_profile"

struct DefinitionRow {
  DefinitionKind kind{};
  std::string name;       // unique per scope and kind
  std::string json;       // canonical
  std::string digest;     // sha256 of json, hex
  uint64_t revision = 0;  // from 1; each change adds one
  WallTime created_at{};
  WallTime updated_at{};
};

struct SessionRow {
  SessionId id;
  std::string agent;  // name of its agent's definition
  std::string title;
  std::string metadata;  // JSON object
  SessionStatus status{};
  uint64_t last_seq = 0;  // of its log
  RunId active_run;       // empty when none
  WallTime created_at{};
  WallTime updated_at{};
};

struct TaskRow {
  TaskId id;
  SessionId session;
  TaskStatus status{};
  RunId last_run;
  WallTime created_at{};
  WallTime updated_at{};
};

struct RunRow {
  RunId id;
  SessionId session;
  TaskId task;
  RunStatus status{};
  uint32_t attempt = 0;         // of its task, from 1
  uint64_t fence = 0;           // raised by each claim
  ReplicaId owner;              // empty when nobody has it
  std::string manifest_digest;  // empty until pinned
  std::string error_code;       // of a failed one
  std::string error_message;
  uint64_t first_seq = 0;  // its first event
  WallTime created_at{};
  std::optional<WallTime> started_at;
  std::optional<WallTime> ended_at;
};

// A sandbox's ledger row, made before its provider is asked (DESIGN.md, rule 3).
struct SandboxRow {
  SandboxId id;
  SessionId session;  // empty for one that an API caller holds by itself
  std::string kind;   // which of the session's sandboxes; "main" for the conversation's
  std::string backend;
  std::string profile;
  std::string spec;         // JSON, as asked for
  uint64_t generation = 0;  // raised by each change of the row; If-Match of deletion
  SandboxStatus status{};
  std::string status_reason;
  std::string instance;   // JSON of the backend: whatever finds the instance again
  uint32_t uid_base = 0;  // first of its 65,536 host uids; 0 when it has none
  WallTime created_at{};
  WallTime updated_at{};
  WallTime expires_at{};
};

// A page of a list, in the order of ids (creation).
template <typename Row>
struct Page {
  std::vector<Row> rows;
  std::string next_cursor;  // empty at the end; opaque to clients
};

}  // namespace caisson::store
