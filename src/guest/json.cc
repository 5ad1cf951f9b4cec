#include "guest/json.h"

#include <charconv>

#include "guest/text.h"

namespace caisson::guest {

// Recursive descent over one text. Kept apart from Json so that no parse state lives in values.
class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  Result<Json> Run() {
    Json value;
    SkipSpace();
    if (!Value(value, 0)) return Fault();
    SkipSpace();
    if (at_ != text_.size()) {
      Note("text after the value");
      return Fault();
    }
    return value;
  }

 private:
  static constexpr int kMaxDepth = 64;
  static constexpr size_t kMaxValues = 200'000;

  std::unexpected<Error> Fault() const {
    std::string message = fault_;
    message += " at byte ";
    AppendDecimal(message, static_cast<int64_t>(at_));
    return Fail(ErrorCode::kInvalidJson, std::move(message));
  }
  bool Note(const char* what) {
    if (fault_ == nullptr) fault_ = what;
    return false;
  }
  bool Peek(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Eat(char c) {
    if (!Peek(c)) return false;
    at_++;
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      at_++;
    }
  }
  bool Word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Note("unknown word");
    at_ += word.size();
    return true;
  }

  bool Value(Json& out, int depth) {
    if (depth > kMaxDepth) return Note("nested deeper than 64");
    if (++values_ > kMaxValues) return Note("more than 200000 values");
    if (at_ >= text_.size()) return Note("unexpected end");
    switch (text_[at_]) {
      case '{':
        return Object(out, depth);
      case '[':
        return Array(out, depth);
      case '"':
        out.type_ = Json::Type::kString;
        return String(out.text_);
      case 't':
        out.type_ = Json::Type::kBool;
        out.integer_ = 1;
        return Word("true");
      case 'f':
        out.type_ = Json::Type::kBool;
        return Word("false");
      case 'n':
        return Word("null");
      default:
        return Number(out);
    }
  }

  bool Object(Json& out, int depth) {
    out.type_ = Json::Type::kObject;
    at_++;
    SkipSpace();
    if (Eat('}')) return true;
    for (;;) {
      SkipSpace();
      if (!Peek('"')) return Note("expected a key");
      if (!String(out.keys_.emplace_back())) return false;
      SkipSpace();
      if (!Eat(':')) return Note("expected ':'");
      SkipSpace();
      if (!Value(out.items_.emplace_back(), depth + 1)) return false;
      SkipSpace();
      if (Eat('}')) return true;
      if (!Eat(',')) return Note("expected ',' or '}'");
    }
  }

  bool Array(Json& out, int depth) {
    out.type_ = Json::Type::kArray;
    at_++;
    SkipSpace();
    if (Eat(']')) return true;
    for (;;) {
      SkipSpace();
      if (!Value(out.items_.emplace_back(), depth + 1)) return false;
      SkipSpace();
      if (Eat(']')) return true;
      if (!Eat(',')) return Note("expected ',' or ']'");
    }
  }

  bool Hex4(uint32_t& out) {
    if (text_.size() - at_ < 4) return Note("bad \\u escape");
    out = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (error != std::errc() || end != text_.data() + at_ + 4 || text_[at_] == '-') {
      return Note("bad \\u escape");
    }
    at_ += 4;
    return true;
  }

  bool Escape(std::string& out) {
    if (at_ >= text_.size()) return Note("unexpected end");
    char c = text_[at_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return true;
      case 'b':
        out += '\b';
        return true;
      case 'f':
        out += '\f';
        return true;
      case 'n':
        out += '\n';
        return true;
      case 'r':
        out += '\r';
        return true;
      case 't':
        out += '\t';
        return true;
      case 'u':
        break;
      default:
        return Note("unknown escape");
    }
    uint32_t unit = 0;
    if (!Hex4(unit)) return false;
    if (unit >= 0xDC00 && unit < 0xE000) return Note("lone surrogate");
    if (unit >= 0xD800 && unit < 0xDC00) {
      uint32_t low = 0;
      if (!Eat('\\') || !Eat('u') || !Hex4(low) || low < 0xDC00 || low >= 0xE000) {
        return Note("lone surrogate");
      }
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(out, unit);
    return true;
  }

  bool String(std::string& out) {
    at_++;
    for (;;) {
      size_t start = at_;
      while (at_ < text_.size()) {
        auto c = static_cast<uint8_t>(text_[at_]);
        if (c == '"' || c == '\\' || c < 0x20) break;
        if (c < 0x80) {
          at_++;
          continue;
        }
        size_t length = Utf8SequenceLength(text_.substr(at_, 4));
        if (length == 0) return Note("bad UTF-8");
        at_ += length;
      }
      out.append(text_.substr(start, at_ - start));
      if (at_ >= text_.size()) return Note("unexpected end");
      if (Eat('"')) return true;
      if (!Eat('\\')) return Note("control character in a string");
      if (!Escape(out)) return false;
    }
  }

  bool Digits() {
    size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') at_++;
    return at_ > start || Note("expected a digit");
  }

  bool Number(Json& out) {
    size_t start = at_;
    bool integral = true;
    Eat('-');
    if (!Eat('0') && !Digits()) return Note("expected a value");
    if (Eat('.')) {
      integral = false;
      if (!Digits()) return false;
    }
    if (Eat('e') || Eat('E')) {
      integral = false;
      if (!Eat('+')) Eat('-');
      if (!Digits()) return false;
    }
    std::string_view number = text_.substr(start, at_ - start);
    if (integral) {
      auto result = std::from_chars(number.data(), number.data() + number.size(), out.integer_);
      if (result.ec == std::errc()) {
        out.type_ = Json::Type::kInt;
        return true;
      }
    }
    out.type_ = Json::Type::kOtherNumber;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  size_t values_ = 0;
  const char* fault_ = nullptr;
};

Result<Json> Json::Parse(std::string_view text) { return JsonParser(text).Run(); }

const Json* Json::Find(std::string_view key) const {
  for (size_t i = keys_.size(); i-- > 0;) {
    if (keys_[i] == key) return items_[i].is(Type::kNull) ? nullptr : &items_[i];
  }
  return nullptr;
}

Fields::Fields(const Json& object) : object_(object) {
  if (!object.is(Json::Type::kObject)) {
    error_ = Error{ErrorCode::kInvalidArgument, "a JSON object is expected", {}, std::nullopt};
  }
}

void Fields::Complain(std::string message) {
  if (!error_) error_ = Error{ErrorCode::kInvalidArgument, std::move(message), {}, std::nullopt};
}

bool Fields::Has(std::string_view name) const { return object_.Find(name) != nullptr; }

const Json* Fields::Member(std::string_view name, Json::Type type) {
  const Json* value = object_.Find(name);
  if (value == nullptr || error_) return nullptr;
  if (value->is(type)) return value;
  constexpr const char* kNames[] = {"null",     "true or false", "a whole number", "a number",
                                    "a string", "an array",      "an object"};
  Complain("`" + std::string(name) + "` must be " + kNames[static_cast<size_t>(type)]);
  return nullptr;
}

std::optional<std::string> Fields::Bytes(std::string_view name) {
  std::string encoded_name = std::string(name) + "_base64";
  if (const Json* encoded = Member(encoded_name, Json::Type::kString)) {
    if (auto bytes = Base64Decode(encoded->AsString())) return bytes;
    Complain("`" + encoded_name + "` is not base64");
    return std::nullopt;
  }
  const Json* value = Member(name, Json::Type::kString);
  if (value == nullptr) return std::nullopt;
  return value->AsString();
}

std::string Fields::Required(std::string_view name) {
  auto value = Bytes(name);
  if (!value) Complain("`" + std::string(name) + "` is missing");
  return value.value_or(std::string());
}

std::string Fields::BytesOr(std::string_view name, std::string_view fallback) {
  auto value = Bytes(name);
  return value ? *std::move(value) : std::string(fallback);
}

bool Fields::Bool(std::string_view name, bool fallback) {
  const Json* value = Member(name, Json::Type::kBool);
  return value == nullptr ? fallback : value->AsBool();
}

std::optional<int64_t> Fields::Int(std::string_view name, int64_t low, int64_t high) {
  const Json* value = Member(name, Json::Type::kInt);
  if (value == nullptr) return std::nullopt;
  if (value->AsInt() < low || value->AsInt() > high) {
    Complain("`" + std::string(name) + "` must be between " + Decimal(low) + " and " +
             Decimal(high));
    return std::nullopt;
  }
  return value->AsInt();
}

int64_t Fields::IntOr(std::string_view name, int64_t fallback, int64_t low, int64_t high) {
  return Int(name, low, high).value_or(fallback);
}

void JsonWriter::Separate() {
  if (comma_) text_ += ',';
  comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  String(key);
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view utf8) {
  constexpr std::string_view kHex = "0123456789abcdef";
  Separate();
  text_ += '"';
  size_t start = 0;
  for (size_t i = 0; i < utf8.size(); i++) {
    auto c = static_cast<uint8_t>(utf8[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
    text_.append(utf8.substr(start, i - start));
    start = i + 1;
    text_ += '\\';
    switch (c) {
      case '"':
      case '\\':
        text_ += static_cast<char>(c);
        break;
      case '\n':
        text_ += 'n';
        break;
      case '\r':
        text_ += 'r';
        break;
      case '\t':
        text_ += 't';
        break;
      default:
        text_ += "u00";
        text_ += kHex[c >> 4];
        text_ += kHex[c & 15];
    }
  }
  text_.append(utf8.substr(start));
  text_ += '"';
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) {
  Separate();
  AppendDecimal(text_, value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  Separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  Separate();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::Bytes(std::string_view key, std::string_view bytes) {
  if (IsValidUtf8(bytes)) return Field(key, bytes);
  Field(key, ReplaceBadUtf8(bytes));
  return Field(std::string(key) + "_base64", Base64Encode(bytes));
}

}  // namespace caisson::guest
