// The pattern language of search: `*`, `?`, `[abc]`, `[!a]`, `[^a]`, `{a,b}`, `**`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::guest {

struct GlobOptions {
  bool bare_any_depth = true;  // a pattern without '/' matches names at any depth
  bool hidden = false;         // wildcards match a leading dot, and `**` enters dot directories
  bool bare_dot_directories = false;  // the depth that a bare pattern has enters them, too
};

// A compiled pattern, applied while walking: the walker carries a state down the tree, which says
// what can still match below, so that hopeless directories are not entered.
class Glob {
 public:
  // kInvalidPattern: empty, `..`, more than 1,000 alternatives, an unbalanced '{'.
  static Result<Glob> Compile(std::string_view pattern, const GlobOptions& options);

  // One position in one alternative.
  struct Position {
    uint32_t alternative = 0;
    uint32_t component = 0;
    auto operator<=>(const Position&) const = default;
  };
  using State = std::vector<Position>;

  State Start() const;
  // Of an entry where the walk's state is `state`: whether it matches itself, and the state for
  // what lies in it if it is a directory (empty: nothing there can match).
  bool MatchesEntry(const State& state, std::string_view name) const;
  State Below(const State& state, std::string_view name) const;

  // One path from the top, '/'-separated; for tests and file filters.
  bool Matches(std::string_view path) const;

 private:
  struct Component {
    bool any_depth = false;        // "**", or the depth of a bare pattern
    bool dot_directories = false;  // of any_depth: those are entered
    std::string pattern;
  };
  void Close(State& state) const;

  bool hidden_ = false;
  std::vector<std::vector<Component>> alternatives_;
};

// One name against one component's pattern (no '/', no '{'). `?` and classes take one character;
// a byte that is no UTF-8 is one too.
bool MatchName(std::string_view pattern, std::string_view name, bool hidden);

}  // namespace caisson::guest
