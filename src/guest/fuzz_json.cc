// libFuzzer target: any bytes into the JSON reader; what it accepts is written and read again.
#include <cstdint>
#include <string_view>

#include "guest/json.h"

namespace {

void Write(const caisson::guest::Json& json, caisson::guest::JsonWriter& out) {
  using Type = caisson::guest::Json::Type;
  switch (json.type()) {
    case Type::kNull:
      out.Null();
      break;
    case Type::kBool:
      out.Bool(json.AsBool());
      break;
    case Type::kInt:
      out.Int(json.AsInt());
      break;
    case Type::kOtherNumber:
      out.Int(0);
      break;
    case Type::kString:
      out.String(json.AsString());
      break;
    case Type::kArray:
      out.BeginArray();
      for (const auto& item : json.items()) Write(item, out);
      out.EndArray();
      break;
    case Type::kObject:
      out.BeginObject();
      for (size_t i = 0; i < json.items().size(); i++) {
        out.Key(json.keys()[i]);
        Write(json.items()[i], out);
      }
      out.EndObject();
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto json = caisson::guest::Json::Parse({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  caisson::guest::JsonWriter writer;
  Write(*json, writer);
  if (!caisson::guest::Json::Parse(writer.text())) __builtin_trap();
  return 0;
}
