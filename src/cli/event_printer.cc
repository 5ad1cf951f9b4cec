#include "cli/event_printer.h"

#include <fmt/format.h>

#include <cstdio>

#include "guest/text.h"
#include "json/reader.h"
#include "store/states.h"

namespace caisson::cli {
namespace {

constexpr size_t kShownBytes = 2000;  // of one tool result

uint32_t CodePoint(std::string_view sequence) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(sequence[i]); };
  switch (sequence.size()) {
    case 2:
      return (byte(0) & 0x1fu) << 6 | (byte(1) & 0x3fu);
    case 3:
      return (byte(0) & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    case 4:
      return (byte(0) & 0x07u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 |
             (byte(3) & 0x3fu);
    default:
      return byte(0);
  }
}

// Bidirectional controls, zero-width characters, line and paragraph separators, C1 controls.
bool IsDeceptive(uint32_t point) {
  return (point >= 0x80 && point < 0xa0) || (point >= 0x200b && point <= 0x200f) ||
         (point >= 0x2028 && point <= 0x202e) || (point >= 0x2060 && point <= 0x206f) ||
         point == 0xfeff;
}

std::string Indent(std::string_view text) {
  std::string out = "    ";
  for (char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

std::string Escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    size_t length = guest::Utf8SequenceLength(text);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    uint32_t point = CodePoint(text.substr(0, length));
    bool control = (point < 0x20 && point != '\n' && point != '\t') || point == 0x7f;
    if (control) {
      out += fmt::format("\\x{:02x}", point);
    } else if (IsDeceptive(point)) {
      out += fmt::format("\\u{{{:x}}}", point);
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

bool EventPrinter::Print(const http::ServerSentEvent& event) {
  auto envelope = json::ParseObject(event.data);
  if (!envelope) return true;
  const json::value* data = envelope->if_contains("data");
  if (as_json_) {
    fmt::print("{}\n", event.data);
  } else if (data != nullptr && data->is_object()) {
    PrintHuman(event.event, data->get_object());
  }
  std::fflush(stdout);
  if (event.event != "run_state" || data == nullptr || !data->is_object()) return true;
  json::ObjectReader reader(data->get_object());
  std::string to = reader.String("to_status").value_or("");
  auto status = store::StatusFromName<store::RunStatus>(to);
  if (!status.has_value() || !store::IsTerminal(*status)) return true;
  end_ = to;
  return false;
}

void EventPrinter::EndLine() {
  if (in_text_) fmt::print("\n");
  in_text_ = false;
}

void EventPrinter::PrintHuman(const std::string& name, const json::object& data) {
  json::ObjectReader reader(data);
  auto text = [&](std::string_view field) { return Escape(reader.String(field).value_or("")); };
  if (name == "token") {
    fmt::print("{}", text("content"));
    in_text_ = true;
    return;
  }
  if (name == "reasoning") return;
  EndLine();
  if (name == "tool_call") {
    const json::object* args = reader.Object("args");
    fmt::print("-> {} {}\n", text("name"), Escape(args == nullptr ? "" : json::Serialize(*args)));
  } else if (name == "tool_result") {
    std::string output = text("output");
    if (output.size() > kShownBytes) {
      size_t cut = kShownBytes;
      while ((static_cast<unsigned char>(output[cut]) & 0xc0) == 0x80) cut--;
      output = output.substr(0, cut) + " […]";
    }
    while (output.ends_with('\n')) output.pop_back();
    fmt::print("{}\n", Indent(output));
  } else if (name == "message_discarded") {
    fmt::print("(the answer broke off: {}; what it said so far does not count)\n", text("code"));
  } else if (name == "model_retry") {
    fmt::print("(the model is asked again in {} ms: {})\n",
               reader.Int("wait_ms", 0, INT64_MAX).value_or(0), text("code"));
  } else if (name == "sandbox_lifecycle") {
    auto took = reader.Int("duration_ms", 0, INT64_MAX);
    fmt::print("[sandbox {}{}]\n", text("phase"),
               took.has_value() ? fmt::format(" in {} ms", *took) : "");
  } else if (name == "usage") {
    auto number = [&](std::string_view field) {
      auto value = reader.Int(field, 0, INT64_MAX);
      return value.has_value() ? std::to_string(*value) : std::string("not reported");
    };
    fmt::print("[usage: {} model calls, input tokens {}, output tokens {}]\n",
               number("model_calls"), number("input_tokens"), number("output_tokens"));
  } else if (name == "error") {
    fmt::print("error ({}): {}\n", text("code"), text("message"));
  } else if (name == "run_state") {
    fmt::print("[run {}]\n", text("to_status"));
  }
}

}  // namespace caisson::cli
