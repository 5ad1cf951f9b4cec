// A run's events on a terminal, as they come.
#pragma once

#include <string>

#include "http/sse_decoder.h"
#include "json/json.h"

namespace caisson::cli {

// Everything that came from a model or a sandbox is shown with control characters escaped: it must
// not move the cursor, change colours or forge a line.
class EventPrinter {
 public:
  explicit EventPrinter(bool as_json) : as_json_(as_json) {}

  // False after the event that ended a run.
  bool Print(const http::ServerSentEvent& event);
  // Status of the run's end: "done", "failed", "cancelled", "interrupted"; empty before.
  const std::string& end() const { return end_; }

 private:
  void PrintHuman(const std::string& name, const json::object& data);
  void EndLine();
  bool as_json_;
  bool in_text_ = false;
  std::string end_;
};

// Line feeds stay; every other control character, and what reorders text, becomes \xNN or \u{…}.
std::string Escape(std::string_view text);

}  // namespace caisson::cli
