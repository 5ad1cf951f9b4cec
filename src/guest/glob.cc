#include "guest/glob.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxAlternatives = 1'000;
constexpr size_t kMaxPatternBytes = 4'096;

std::string_view TakeCharacter(std::string_view& text) {
  size_t length = std::max<size_t>(Utf8SequenceLength(text), 1);
  std::string_view character = text.substr(0, length);
  text.remove_prefix(length);
  return character;
}

// Characters compare by code point as bytes do in UTF-8: shorter sequences are smaller.
bool InRange(std::string_view character, std::string_view low, std::string_view high) {
  auto not_less = [](std::string_view a, std::string_view b) {
    return a.size() != b.size() ? a.size() > b.size() : a >= b;
  };
  return not_less(character, low) && not_less(high, character);
}

// Where the class that starts at pattern[at] ('[') ends (after its ']'); nothing if it is not one.
std::optional<size_t> ClassEnd(std::string_view pattern, size_t at) {
  size_t i = at + 1;
  if (i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^')) i++;
  if (i < pattern.size() && pattern[i] == ']') i++;  // a first ']' is a member
  size_t end = pattern.find(']', i);
  if (end == std::string_view::npos) return std::nullopt;
  return end + 1;
}

bool MatchClass(std::string_view body, std::string_view character) {
  bool negated = !body.empty() && (body[0] == '!' || body[0] == '^');
  if (negated) body.remove_prefix(1);
  bool found = false;
  while (!body.empty()) {
    std::string_view low = TakeCharacter(body);
    if (body.size() >= 2 && body[0] == '-') {
      body.remove_prefix(1);
      std::string_view high = TakeCharacter(body);
      found |= InRange(character, low, high);
    } else {
      found |= character == low;
    }
  }
  return found != negated;
}

// Replaces the first top-level {…} by each of its parts, again and again.
Result<void> Expand(std::string_view pattern, std::vector<std::string>& out) {
  auto too_many = [] {
    return Fail(ErrorCode::kInvalidPattern, "the pattern has more than 1000 alternatives");
  };
  size_t open = 0;
  for (; open < pattern.size() && pattern[open] != '{'; open++) {
    if (pattern[open] == '[') {
      if (auto end = ClassEnd(pattern, open)) open = *end - 1;
    }
  }
  if (open >= pattern.size()) {
    if (out.size() >= kMaxAlternatives) return too_many();
    out.emplace_back(pattern);
    return {};
  }
  std::vector<std::string_view> parts;
  size_t depth = 1;
  size_t start = open + 1;
  size_t at = start;
  for (; at < pattern.size() && depth > 0; at++) {
    if (pattern[at] == '[') {
      if (auto end = ClassEnd(pattern, at)) at = *end - 1;
    } else if (pattern[at] == '{') {
      depth++;
    } else if (pattern[at] == '}') {
      depth--;
      if (depth == 0) parts.push_back(pattern.substr(start, at - start));
    } else if (pattern[at] == ',' && depth == 1) {
      parts.push_back(pattern.substr(start, at - start));
      start = at + 1;
    }
  }
  if (depth != 0) return Fail(ErrorCode::kInvalidPattern, "the pattern has an unclosed '{'");
  for (std::string_view part : parts) {
    std::string whole(pattern.substr(0, open));
    whole += part;
    whole += pattern.substr(at);
    CAISSON_TRY(Expand(whole, out));
  }
  return {};
}

}  // namespace

bool MatchName(std::string_view pattern, std::string_view name, bool hidden) {
  if (!hidden && name.starts_with('.') && !pattern.starts_with('.')) return false;
  // One point to come back to is enough: a later star can take over what an earlier one did.
  std::optional<std::pair<std::string_view, std::string_view>> star;
  for (;;) {
    if (!pattern.empty() && pattern[0] == '*') {
      pattern.remove_prefix(1);
      star = {pattern, name};
      continue;
    }
    bool same = false;
    if (!pattern.empty() && !name.empty()) {
      std::string_view rest = name;
      std::string_view character = TakeCharacter(rest);
      std::optional<size_t> end;
      if (pattern[0] == '[') end = ClassEnd(pattern, 0);
      if (end) {
        same = MatchClass(pattern.substr(1, *end - 2), character);
        if (same) pattern.remove_prefix(*end);
      } else if (pattern[0] == '?') {
        same = true;
        pattern.remove_prefix(1);
      } else if (pattern.starts_with(character)) {
        same = true;
        pattern.remove_prefix(character.size());
      }
      if (same) name = rest;
    } else if (pattern.empty() && name.empty()) {
      return true;
    }
    if (same) continue;
    if (!star || star->second.empty()) return false;
    TakeCharacter(star->second);
    pattern = star->first;
    name = star->second;
  }
}

Result<Glob> Glob::Compile(std::string_view pattern, const GlobOptions& options) {
  auto bad = [](const char* message) { return Fail(ErrorCode::kInvalidPattern, message); };
  if (pattern.empty()) return bad("the pattern is empty");
  if (pattern.size() > kMaxPatternBytes) return bad("the pattern exceeds 4096 bytes");
  if (pattern.find('\0') != std::string_view::npos) return bad("the pattern has a NUL");
  std::vector<std::string> texts;
  CAISSON_TRY(Expand(pattern, texts));
  Glob glob;
  glob.hidden_ = options.hidden;
  for (const std::string& text : texts) {
    std::vector<Component> components;
    bool bare = text.find('/') == std::string::npos;
    if (bare && options.bare_any_depth) {
      components.push_back(Component{true, options.hidden || options.bare_dot_directories, {}});
    }
    std::string_view rest = text;
    while (!rest.empty()) {
      size_t slash = rest.find('/');
      std::string_view part = rest.substr(0, slash);
      rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
      if (part.empty() || part == ".") continue;
      if (part == "..") return bad("`..` is not accepted in a pattern");
      bool any = part == "**";
      if (any && !components.empty() && components.back().any_depth) continue;
      components.push_back(Component{any, options.hidden, std::string(part)});
    }
    if (!components.empty()) glob.alternatives_.push_back(std::move(components));
  }
  return glob;
}

void Glob::Close(State& state) const {
  // `**` may stand for nothing: the component behind it is reached as well.
  for (size_t i = 0; i < state.size(); i++) {
    const auto& components = alternatives_[state[i].alternative];
    if (components[state[i].component].any_depth && state[i].component + 1 < components.size()) {
      state.push_back({state[i].alternative, state[i].component + 1});
    }
  }
  std::sort(state.begin(), state.end());
  state.erase(std::unique(state.begin(), state.end()), state.end());
}

Glob::State Glob::Start() const {
  State state;
  for (uint32_t i = 0; i < alternatives_.size(); i++) state.push_back({i, 0});
  Close(state);
  return state;
}

bool Glob::MatchesEntry(const State& state, std::string_view name) const {
  return std::any_of(state.begin(), state.end(), [&](const Position& position) {
    const auto& components = alternatives_[position.alternative];
    const Component& component = components[position.component];
    if (position.component + 1 < components.size()) return false;
    if (component.any_depth) return hidden_ || !name.starts_with('.');
    return MatchName(component.pattern, name, hidden_);
  });
}

Glob::State Glob::Below(const State& state, std::string_view name) const {
  State below;
  for (const Position& position : state) {
    const auto& components = alternatives_[position.alternative];
    const Component& component = components[position.component];
    if (component.any_depth) {
      if (component.dot_directories || !name.starts_with('.')) below.push_back(position);
    } else if (position.component + 1 < components.size() &&
               MatchName(component.pattern, name, hidden_)) {
      below.push_back({position.alternative, position.component + 1});
    }
  }
  Close(below);
  return below;
}

bool Glob::Matches(std::string_view path) const {
  State state = Start();
  for (;;) {
    size_t slash = path.find('/');
    if (slash == std::string_view::npos) return MatchesEntry(state, path);
    state = Below(state, path.substr(0, slash));
    path.remove_prefix(slash + 1);
  }
}

}  // namespace caisson::guest
