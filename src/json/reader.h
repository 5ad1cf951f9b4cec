// Reads an object that came from outside, field by field. The first thing wrong is remembered and
// given at the end, with the path of its field: "limits.max_steps" must be an integer ….
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "json/json.h"

namespace caisson::json {

// The object outlives the reader. A null field counts as absent.
class ObjectReader {
 public:
  enum class Unknown : uint8_t { kRefuse, kIgnore };

  explicit ObjectReader(const object& json, std::string path = {})
      : json_(json), path_(std::move(path)) {}

  bool Has(std::string_view name) const;
  std::optional<std::string> String(std::string_view name);
  // Empty (and an error) when it is not there.
  std::string RequiredString(std::string_view name, size_t max_bytes = 1 << 20);
  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  std::optional<double> Number(std::string_view name, double min, double max);
  std::optional<bool> Bool(std::string_view name);
  const object* Object(std::string_view name);
  const array* Array(std::string_view name);
  std::vector<std::string> Strings(std::string_view name);
  // One of `choices`; nothing when absent.
  std::optional<std::string> Choice(std::string_view name,
                                    std::initializer_list<std::string_view> choices);
  // "path.name", for errors and nested readers.
  std::string PathOf(std::string_view name) const;
  // Remembers what a check of the caller's found.
  void Wrong(std::string_view name, std::string_view what);

  // kInvalidArgument with the first thing that was wrong. With kRefuse, a field that nobody asked
  // for is wrong, too: it is most likely misspelt.
  Result<void> Finish(Unknown unknown) const;

 private:
  const value* Find(std::string_view name);
  const object& json_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
  std::string wrong_;
};

}  // namespace caisson::json
