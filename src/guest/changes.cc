#include "guest/changes.h"

#include <utility>

#include "guest/json.h"
#include "guest/paths.h"
#include "guest/protocol.h"
#include "guest/records.h"

namespace caisson::guest {
namespace {

// A record that has reached this takes no more changes: the next one could be as long as a path of
// kMaxPathBytes and a name, every byte of it escaped.
constexpr size_t kFullBytes = kMaxRecordBytes - 6 * (kMaxPathBytes + kMaxNameBytes) - 1024;

const char* NameOf(ChangeKind kind) {
  if (kind == ChangeKind::kCreated) return "created";
  return kind == ChangeKind::kModified ? "modified" : "removed";
}

}  // namespace

void Changes::Add(std::string path, ChangeKind kind, bool directory) {
  if (lost()) return;
  size_t size = path.size();
  auto [known, added] = pending_.try_emplace(std::move(path), Change{kind, directory});
  if (!added) {
    bool still_new = known->second.kind == ChangeKind::kCreated && kind == ChangeKind::kModified;
    if (!still_new) known->second = Change{kind, directory};
    return;
  }
  path_bytes_ += size;
  if (pending_.size() > kMaxPendingChanges || path_bytes_ > kMaxPendingPathBytes) Lose("pending");
}

void Changes::Lose(const char* reason) {
  if (lost()) return;
  reason_ = reason;
  pending_.clear();
  path_bytes_ = 0;
}

void Changes::Take(std::string& out) {
  JsonWriter json;
  json.BeginObject();
  if (lost()) {
    json.Field("reason", std::exchange(reason_, nullptr)).EndObject();
    AppendRecord(out, RecordType::kWatchOverflow, 0, json.text());
    return;
  }
  json.Key("changes").BeginArray();
  while (!pending_.empty() && json.size() < kFullBytes) {
    const auto& [path, change] = *pending_.begin();
    json.BeginObject().Bytes("path", JoinPath(base_, path)).Field("kind", NameOf(change.kind));
    json.Flag("directory", change.directory).EndObject();
    path_bytes_ -= path.size();
    pending_.erase(pending_.begin());
  }
  json.EndArray().EndObject();
  AppendRecord(out, RecordType::kChanges, 0, json.text());
}

}  // namespace caisson::guest
