// What answers look like, as data beside the routes that give them.
#pragma once

#include <string_view>

#include "json/json.h"

namespace caisson::api {

// A component of the description, which others name: "#/components/schemas/<name>".
struct Schema {
  std::string_view name;
  // JSON Schema where it begins with '{'. Else the object's fields, "name:type" with "?" behind the
  // name of one that may be absent, as in events/event_types.def. Types: string int number bool
  // object (of any fields) time; the name of a Schema; "[type]" for a list; "type|null"; and
  // words with '|' between them for a text that is one of these.
  std::string_view text;
};
json::value ToJsonSchema(const Schema& schema);

// What a route answers when all is well.
struct Success {
  std::string_view media;   // empty: no body
  std::string_view schema;  // of JSON: the name of a Schema
  bool page = false;        // a list of these, with a cursor
};
inline constexpr Success kNoBody{};
inline constexpr Success kBytes{"application/octet-stream", ""};
constexpr Success One(std::string_view schema) { return {"application/json", schema}; }
constexpr Success PageOf(std::string_view schema) { return {"application/json", schema, true}; }

// The reference to a component.
json::object SchemaReference(std::string_view name);

}  // namespace caisson::api
