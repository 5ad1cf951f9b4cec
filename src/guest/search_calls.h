// The calls of docs/guest-protocol.md section 7.
#pragma once

#include "guest/file_calls.h"

namespace caisson::guest {

class SearchCalls {
 public:
  explicit SearchCalls(FileCalls& files) : files_(files) {}
  void Install();

 private:
  void Glob(Connection& connection, Fields& fields);
  void Grep(Connection& connection, Fields& fields);

  FileCalls& files_;
};

}  // namespace caisson::guest
