// The calls of docs/guest-protocol.md section 6, over the operations of file_ops.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "guest/archive_calls.h"
#include "guest/children.h"
#include "guest/connection.h"
#include "guest/file_content.h"
#include "guest/file_ops.h"
#include "guest/identity.h"
#include "guest/json.h"
#include "guest/paths.h"
#include "guest/server.h"
#include "guest/watch_calls.h"
#include "guest/worker.h"

namespace caisson::guest {

class FileCalls {
 public:
  static Result<std::unique_ptr<FileCalls>> Open(Loop& loop, Server& server, Children& children,
                                                 const Identity& identity, const Config& config);
  void Install();

  // A POST whose body is a JSON object.
  using BodyHandler = std::function<void(Connection& connection, Fields& fields)>;
  void PostRoute(std::string_view path, BodyHandler handler);

  enum class Effect : uint8_t { kReads, kChanges };
  // Runs `job` in a worker and replies with what it gives. Past its deadline a reading one fails
  // alone; a changing one marks the sandbox unclean.
  void RunInWorker(Connection& connection, Effect effect, std::string path, Workers::Job job,
                   Workers::Authority authority = Workers::Authority::kUser);
  const Paths& paths() const { return paths_; }
  FileContentContext Context() const;

 private:
  FileCalls(Loop& loop, Server& server, Children& children, const Identity& identity,
            const Config& config, Paths paths)
      : loop_(loop),
        server_(server),
        identity_(identity),
        config_(config),
        paths_(std::move(paths)),
        workers_(loop, children, identity),
        archives_(loop, server, workers_, paths_),
        watches_(loop, server, workers_, paths_) {}

  // Runs `job` here, under the command user's file-system identity.
  void RunHere(Connection& connection, Effect effect, const std::string& path,
               const Workers::Job& job);
  void Answer(Connection& connection, const std::string& path, const FileResult& result);

  void Stat(Connection& connection);
  void List(Connection& connection);
  void Lines(Connection& connection);
  void Edit(Connection& connection, Fields& fields);
  void MakeDir(Connection& connection, Fields& fields);
  void Move(Connection& connection, Fields& fields);
  void Copy(Connection& connection, Fields& fields);
  void Remove(Connection& connection, Fields& fields);

  Loop& loop_;
  Server& server_;
  const Identity& identity_;
  const Config& config_;
  Paths paths_;
  Workers workers_;
  ArchiveCalls archives_;
  WatchCalls watches_;
};

// A number of the query between `low` and `high`; kInvalidArgument.
Result<int64_t> QueryInt(const HttpRequest& request, std::string_view name, int64_t fallback,
                         int64_t low, int64_t high);
// `path` and `root` of a request's query or body; kInvalidArgument or kInvalidPath.
Result<FilePath> PathFromQuery(const HttpRequest& request);
Result<FilePath> PathFromFields(Fields& fields, std::string_view name);

}  // namespace caisson::guest
