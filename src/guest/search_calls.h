// The calls of docs/guest-protocol.md section 7.
#pragma once

#include "guest/file_calls.h"
#include "guest/server.h"

namespace caisson::guest {

class SearchCalls {
 public:
  SearchCalls(Server& server, FileCalls& files) : server_(server), files_(files) {}
  void Install();

 private:
  void Glob(Connection& connection, const Json& body);
  void Grep(Connection& connection, const Json& body);

  Server& server_;
  FileCalls& files_;
};

}  // namespace caisson::guest
