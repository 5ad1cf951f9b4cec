#include "api/schema.h"

#include <fmt/format.h>

namespace caisson::api {
namespace {

// Takes what stands before the first `separator` from the front of `text`.
std::string_view TakeItem(std::string_view& text, char separator) {
  std::string_view item = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), item.size() + 1));
  return item;
}

json::object TypeSchema(std::string_view type) {
  if (type.starts_with('[')) {
    return {{"type", "array"}, {"items", TypeSchema(type.substr(1, type.size() - 2))}};
  }
  if (type.ends_with("|null")) {
    return {{"anyOf", {TypeSchema(type.substr(0, type.rfind('|'))), {{"type", "null"}}}}};
  }
  if (type.find('|') != std::string_view::npos) {
    json::array words;
    while (!type.empty()) words.emplace_back(TakeItem(type, '|'));
    return {{"type", "string"}, {"enum", std::move(words)}};
  }
  if (type == "int") return {{"type", "integer"}};
  if (type == "bool") return {{"type", "boolean"}};
  if (type == "time") return {{"type", "string"}, {"format", "date-time"}};
  if (type == "string" || type == "number" || type == "object") return {{"type", type}};
  return SchemaReference(type);
}

}  // namespace

json::object SchemaReference(std::string_view name) {
  return {{"$ref", fmt::format("#/components/schemas/{}", name)}};
}

json::value ToJsonSchema(const Schema& schema) {
  if (schema.text.starts_with('{')) return json::Parse(schema.text).value();
  json::array required;
  json::object properties;
  for (std::string_view rest = schema.text; !rest.empty();) {
    std::string_view type = TakeItem(rest, ' ');
    std::string_view name = TakeItem(type, ':');
    if (name.ends_with('?')) {
      name.remove_suffix(1);
    } else {
      required.emplace_back(name);
    }
    properties[name] = TypeSchema(type);
  }
  return json::object{
      {"type", "object"}, {"required", std::move(required)}, {"properties", std::move(properties)}};
}

}  // namespace caisson::api
