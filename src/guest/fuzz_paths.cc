// libFuzzer target: any bytes as a path in a real tree with links that lead out of it. With
// root=work_dir, whatever is opened or located lies beneath.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "guest/paths.h"

namespace {

using namespace caisson::guest;

void Check(bool holds) {
  if (!holds) __builtin_trap();
}

class Tree {
 public:
  Tree() {
    char name[] = "/tmp/caisson-fuzz-paths-XXXXXX";
    Check(::mkdtemp(name) != nullptr);
    outer_ = name;
    root_ = outer_ + "/w";
    for (const char* dir : {"/w", "/w/a", "/w/a/b", "/o"}) {
      Check(::mkdir((outer_ + dir).c_str(), 0700) == 0);
    }
    for (const char* file : {"/o/f", "/w/f", "/w/a/f"}) {
      int fd = ::open((outer_ + file).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
      Check(fd >= 0);
      ::close(fd);
    }
    const char* links[][2] = {{"..", "u"},     {"../o", "o"},         {"/", "r"},
                              {"a", "l"},      {"../../o/f", "a/f2"}, {"loop", "loop"},
                              {"b/..", "a/d"}, {"/etc", "e"}};
    for (const auto& link : links) {
      Check(::symlink(link[0], (root_ + "/" + link[1]).c_str()) == 0);
    }
    auto paths = Paths::Open(root_);
    Check(paths.has_value());
    paths_ = std::make_unique<Paths>(*std::move(paths));
  }
  ~Tree() {
    std::error_code ignored;
    std::filesystem::remove_all(outer_, ignored);
  }
  const Paths& paths() const { return *paths_; }
  bool Holds(int fd) const {
    std::error_code error;
    auto real = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), error);
    return !error && (real.string() == root_ || real.string().starts_with(root_ + "/"));
  }

 private:
  std::string outer_;
  std::string root_;
  std::unique_ptr<Paths> paths_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Tree tree;
  FilePath path{std::string(reinterpret_cast<const char*>(data), size), PathRoot::kWorkDir};
  auto opened = tree.paths().OpenAny(path, O_PATH);
  if (opened) Check(tree.Holds(opened->get()));
  for (bool follow : {false, true}) {
    auto place = tree.paths().Locate(path, follow);
    if (!place) continue;
    Check(tree.Holds(place->directory.get()));
    Check(place->name.find('/') == std::string::npos && place->name != "..");
  }
  // With the sandbox as root there is no such promise, but it must end.
  (void)tree.paths().OpenAny({path.text, PathRoot::kSandbox}, O_PATH);
  return 0;
}
