// The calls of read-only sets.
#pragma once

#include "guest/file_calls.h"
#include "guest/server.h"

namespace caisson::guest {

class SetCalls {
 public:
  // All outlive this. kInvalidConfig where guest and commands are one user.
  static Result<std::unique_ptr<SetCalls>> Open(const FileContentContext& context,
                                                FileCalls& files);

 private:
  SetCalls(const FileContentContext& context, FileCalls& files)
      : context_(context), files_(files) {}
  void Install();
  // Null, and answered, when it is no set's path.
  const SetPlace* Find(Connection& connection, const std::string& path) const;
  void Describe(Connection& connection);
  void PutBlob(Connection& connection);
  void Apply(Connection& connection, Fields& fields);

  const FileContentContext context_;
  FileCalls& files_;
};

}  // namespace caisson::guest
