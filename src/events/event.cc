#include "events/event.h"

#include <fmt/format.h>

#include <iterator>

#include "json/json.h"

namespace caisson::events {
namespace {

constexpr EventTypeInfo kTable[] = {
#define EVENT_TYPE(enumerator, log, stream, visibility, persistence, fields) \
  {EventType::enumerator, log, stream, Visibility::visibility, Persistence::persistence, fields},
#include "events/event_types.def"
#undef EVENT_TYPE
};

constexpr std::string_view kVisibilityNames[] = {"end_user", "builder", "internal"};

struct Field {
  std::string_view name;
  std::string_view type;
  bool optional = false;
};

// Takes the next "name?:type" from the front of `fields`.
Field NextField(std::string_view& fields) {
  std::string_view item = fields.substr(0, fields.find(' '));
  fields.remove_prefix(item.size() < fields.size() ? item.size() + 1 : item.size());
  size_t colon = item.find(':');
  Field field{item.substr(0, colon), item.substr(colon + 1), false};
  if (field.name.ends_with('?')) {
    field.name.remove_suffix(1);
    field.optional = true;
  }
  return field;
}

bool HasType(const json::value& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "int") return value.is_int64() || value.is_uint64();
  if (type == "number") return value.is_number();
  if (type == "bool") return value.is_bool();
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  return type == "any";
}

}  // namespace

const EventTypeInfo* EventTypeTable(size_t& size) {
  size = std::size(kTable);
  return kTable;
}

const EventTypeInfo& InfoOf(EventType type) { return kTable[static_cast<size_t>(type)]; }

std::optional<EventType> EventTypeFromName(std::string_view name) {
  for (const EventTypeInfo& row : kTable) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::string_view NameOf(Visibility visibility) {
  return kVisibilityNames[static_cast<size_t>(visibility)];
}

std::optional<Visibility> VisibilityFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kVisibilityNames); i++) {
    if (kVisibilityNames[i] == name) return static_cast<Visibility>(i);
  }
  return std::nullopt;
}

Result<void> ValidatePayload(EventType type, std::string_view payload) {
  const EventTypeInfo& info = InfoOf(type);
  // White space between tokens may hold line breaks in JSON; on an SSE data line it may not.
  if (payload.find_first_of("\r\n") != std::string_view::npos) {
    return Fail(ErrorCode::kInternal,
                fmt::format("the payload of {} is not on one line", info.name));
  }
  auto object = json::ParseObject(payload);
  if (!object) {
    return Fail(ErrorCode::kInternal,
                fmt::format("the payload of {} is not a JSON object", info.name));
  }
  for (std::string_view rest = info.fields; !rest.empty();) {
    Field field = NextField(rest);
    const json::value* found = object->if_contains(field.name);
    if (found == nullptr) {
      if (field.optional) continue;
      return Fail(ErrorCode::kInternal,
                  fmt::format("the payload of {} lacks \"{}\"", info.name, field.name));
    }
    if (!HasType(*found, field.type)) {
      return Fail(ErrorCode::kInternal, fmt::format("\"{}\" in the payload of {} is not of type {}",
                                                    field.name, info.name, field.type));
    }
  }
  return {};
}

std::string ToJson(const Event& event) {
  const EventTypeInfo& info = InfoOf(event.type);
  // Ids, names and times need no escaping; the payload is JSON already.
  std::string text = fmt::format(
      R"({{"seq":{},"type":"{}","version":{},"visibility":"{}","session_id":"{}",)", event.seq,
      info.name, event.version, NameOf(info.visibility), event.session.text());
  if (!event.run.empty()) text += fmt::format(R"("run_id":"{}",)", event.run.text());
  if (!event.task.empty()) text += fmt::format(R"("task_id":"{}",)", event.task.text());
  text += fmt::format(R"("at":"{}","data":{}}})", FormatTime(event.at), event.payload);
  return text;
}

std::string ToSse(const Event& event) {
  return fmt::format("id: {}\nevent: {}\ndata: {}\n\n", event.seq, InfoOf(event.type).stream_name,
                     ToJson(event));
}

}  // namespace caisson::events
