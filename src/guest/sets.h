// Read-only sets: directories of files that commands can read and not change, because the files are
// the guest's and the guest is another user. What the calls mean is in docs/guest-protocol.md, 6.
//
// In a set's store, which only the guest writes:
//   blobs/<sha256>  contents, each once; 0444
//   v-<digest>      a version: a tree of links to blobs (copies where a file is executable)
//   current         a link to the version that is shown; replaced by a rename
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "guest/config.h"
#include "guest/file_ops.h"
#include "guest/json.h"
#include "guest/paths.h"

namespace caisson::guest {

struct SetFile {
  std::string sha256;
  bool executable = false;
};
using SetFiles = std::map<std::string, SetFile>;  // by path below the set's

// The `files` of an apply. kInvalidArgument for what is no hash, kInvalidPath for what is no path
// below the set, or comes twice.
Result<SetFiles> ReadSetFiles(const Json& files);
bool IsSha256(std::string_view text);
std::string BlobPath(const SetPlace& set, std::string_view sha256);

// Makes an empty set of an empty store.
Result<void> OpenSet(const SetPlace& set);
// Both reply with the JSON of section 6 and run with the guest's own authority. An apply waits for
// another one of the set, and may be cut off anywhere and repeated: in a process of its own.
FileResult DescribeSet(const SetPlace& set);
FileResult ApplySet(const Paths& paths, const SetPlace& set, const SetFiles& files);

}  // namespace caisson::guest
