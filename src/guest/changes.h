// Changes of files that wait to be told: each path once, within bounds. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace caisson::guest {

enum class ChangeKind : uint8_t { kCreated, kModified, kRemoved };

class Changes {
 public:
  // `base`: what paths are shown below.
  explicit Changes(std::string base) : base_(std::move(base)) {}

  // The last one of a path counts, but what was created and then modified is still new.
  void Add(std::string path, ChangeKind kind, bool directory);
  // Changes are missing: until that is told nothing else has to be, since whoever hears of it looks
  // again. The first reason counts.
  void Lose(const char* reason);

  bool empty() const { return pending_.empty() && reason_ == nullptr; }
  bool lost() const { return reason_ != nullptr; }
  // Appends one record with what fits.
  void Take(std::string& out);

 private:
  struct Change {
    ChangeKind kind;
    bool directory;
  };

  const std::string base_;
  std::map<std::string, Change> pending_;
  size_t path_bytes_ = 0;  // of pending_
  const char* reason_ = nullptr;
};

}  // namespace caisson::guest
