// A small strict JSON reader and writer (RFC 8259, UTF-8 only).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::guest {

// One parsed value; owns its children. Of repeated keys the last counts.
class Json {
 public:
  // No call wants a number that is no int64: what it is worth is not kept.
  enum class Type : uint8_t { kNull, kBool, kInt, kOtherNumber, kString, kArray, kObject };

  // kInvalidJson with the byte offset when the text is not exactly one JSON value, is nested deeper
  // than 64, or holds more than 200,000 values (which would cost far more memory than its text).
  static Result<Json> Parse(std::string_view text);

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool AsBool() const { return integer_ != 0; }
  int64_t AsInt() const { return integer_; }
  const std::string& AsString() const { return text_; }
  const std::vector<Json>& items() const { return items_; }       // of an array or object
  const std::vector<std::string>& keys() const { return keys_; }  // beside items(), of an object
  // The member of an object; null when absent, JSON null, or not an object.
  const Json* Find(std::string_view key) const;

 private:
  friend class JsonParser;
  Type type_ = Type::kNull;
  int64_t integer_ = 0;
  std::string text_;
  std::vector<Json> items_;
  std::vector<std::string> keys_;
};

// Reads typed fields of an object. The first fault is kept and every read after it gives a default,
// so that a caller asks for `error` once, at the end.
class Fields {
 public:
  explicit Fields(const Json& object);

  bool Has(std::string_view name) const;
  // Text or bytes: `name`, or `name`_base64 for bytes that are no UTF-8. Nothing when absent.
  std::optional<std::string> Bytes(std::string_view name);
  std::string Required(std::string_view name);
  std::string BytesOr(std::string_view name, std::string_view fallback);
  bool Bool(std::string_view name, bool fallback);
  std::optional<int64_t> Int(std::string_view name, int64_t low, int64_t high);
  int64_t IntOr(std::string_view name, int64_t fallback, int64_t low, int64_t high);
  const Json* Member(std::string_view name, Json::Type type);
  void Complain(std::string message);

  const std::optional<Error>& error() const { return error_; }

 private:
  const Json& object_;
  std::optional<Error> error_;
};

// Builds JSON text; commas are its own business, balanced Begin/End the caller's.
class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view utf8);
  JsonWriter& Int(int64_t value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  JsonWriter& Field(std::string_view key, std::string_view utf8) { return Key(key).String(utf8); }
  JsonWriter& Field(std::string_view key, const char* utf8) { return Key(key).String(utf8); }
  JsonWriter& Field(std::string_view key, int64_t value) { return Key(key).Int(value); }
  JsonWriter& Flag(std::string_view key, bool value) { return Key(key).Bool(value); }
  // `key`, and `key`_base64 beside it when the bytes are not UTF-8.
  JsonWriter& Bytes(std::string_view key, std::string_view bytes);

  size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void Separate();

  std::string text_;
  bool comma_ = false;  // a value stands before the next one
};

}  // namespace caisson::guest
