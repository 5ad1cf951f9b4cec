// The event envelope. Whatever happens in a run is one of these, appended to its session's log and
// numbered without gaps from 1 (DESIGN.md, rule 2). Nothing is shown to a client that is not here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"

namespace caisson::events {

// Of payloads. Readers accept this version and the one before.
inline constexpr uint32_t kEventVersion = 1;

enum class EventType : uint8_t {
#define EVENT_TYPE(enumerator, log, stream, visibility, persistence, fields) enumerator,
#include "events/event_types.def"
#undef EVENT_TYPE
};

// Who may see it; a reader of one class sees it and the ones before.
enum class Visibility : uint8_t { kEndUser, kBuilder, kInternal };
enum class Persistence : uint8_t { kDurable, kTransient };

struct EventTypeInfo {
  EventType type;
  std::string_view name;         // in the log
  std::string_view stream_name;  // `event:` of SSE
  Visibility visibility;
  Persistence persistence;
  std::string_view fields;  // see event_types.def
};

// All rows in declaration order; `size` receives their number.
const EventTypeInfo* EventTypeTable(size_t& size);
const EventTypeInfo& InfoOf(EventType type);
std::optional<EventType> EventTypeFromName(std::string_view name);
std::string_view NameOf(Visibility visibility);
std::optional<Visibility> VisibilityFromName(std::string_view name);

// What a writer hands to the store, which gives it number and time.
struct NewEvent {
  EventType type{};
  std::string payload;  // a JSON object that fits the type's fields
};

struct Event {
  uint64_t seq = 0;  // per session, from 1, no gaps
  SessionId session;
  RunId run;    // empty for what belongs to no run
  TaskId task;  // empty likewise
  EventType type{};
  uint32_t version = kEventVersion;
  WallTime at{};
  std::string payload;  // JSON object
};

// kInternal, naming the field, unless `payload` is a JSON object on one line with every required
// field of the type, and no field of another type than declared. Unknown fields are allowed:
// writers of a newer version may add them.
Result<void> ValidatePayload(EventType type, std::string_view payload);

// The envelope as clients get it, one line of JSON without line breaks inside:
// {"seq":…,"type":…,"version":…,"visibility":…,"session_id":…,"run_id"?,"task_id"?,"at":…,"data":{…}}
std::string ToJson(const Event& event);
// One SSE message: `id`, `event`, `data`, blank line. The payload cannot forge another (it is JSON,
// where line breaks are escaped).
std::string ToSse(const Event& event);

}  // namespace caisson::events
