#include "guest/file_calls.h"

#include <utility>

#include "guest/file_batch.h"
#include "guest/file_content.h"
#include "guest/file_copy.h"
#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

Result<std::optional<uint32_t>> FieldMode(Fields& fields) {
  auto text = fields.Bytes("mode");
  if (!text) return std::optional<uint32_t>();
  auto mode = ParseOctalMode(*text);
  if (!mode) return Fail(ErrorCode::kInvalidArgument, "`mode` must be octal digits");
  return mode;
}

}  // namespace

Result<int64_t> QueryInt(const HttpRequest& request, std::string_view name, int64_t fallback,
                         int64_t low, int64_t high) {
  const std::string* text = request.Query(name);
  if (text == nullptr) return fallback;
  bool negative = text->starts_with('-');
  auto number = ParseDecimal(std::string_view(*text).substr(negative ? 1 : 0));
  if (number && *number <= static_cast<uint64_t>(INT64_MAX)) {
    auto value = static_cast<int64_t>(*number);
    if (negative) value = -value;
    if (value >= low && value <= high) return value;
  }
  return Fail(ErrorCode::kInvalidArgument, "`" + std::string(name) + "` must be between " +
                                               Decimal(low) + " and " + Decimal(high));
}

bool QueryFlag(const HttpRequest& request, std::string_view name) {
  const std::string* text = request.Query(name);
  return text != nullptr && *text == "1";
}

Result<FilePath> PathFromQuery(const HttpRequest& request) {
  const std::string* path = request.Query("path");
  const std::string* encoded = request.Query("path_base64");
  if (path == nullptr && encoded == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "`path` is missing");
  }
  FilePath result;
  if (encoded != nullptr) {
    auto bytes = Base64Decode(*encoded);
    if (!bytes) return Fail(ErrorCode::kInvalidArgument, "`path_base64` is not base64");
    result.text = *std::move(bytes);
  } else {
    result.text = *path;
  }
  const std::string* root = request.Query("root");
  CAISSON_ASSIGN(result.root, ParseRoot(root == nullptr ? std::string_view() : *root));
  CAISSON_TRY(CheckPath(result));
  return result;
}

Result<FilePath> PathFromFields(Fields& fields, std::string_view name) {
  FilePath result;
  result.text = fields.Required(name);
  std::string root = fields.BytesOr("root", "");
  if (fields.error()) return Fail(*fields.error());
  CAISSON_ASSIGN(result.root, ParseRoot(root));
  CAISSON_TRY(CheckPath(result));
  return result;
}

Result<std::unique_ptr<FileCalls>> FileCalls::Open(Loop& loop, Server& server, Children& children,
                                                   const Identity& identity, const Config& config) {
  CAISSON_ASSIGN(Paths paths, Paths::Open(config.work_dir));
  return std::unique_ptr<FileCalls>(
      new FileCalls(loop, server, children, identity, config, std::move(paths)));
}

void FileCalls::PostRoute(std::string_view path, BodyHandler handler) {
  server_.Route(
      "POST", path, [handler = std::move(handler)](Connection& connection, std::string_view) {
        connection.TakeWhole(kMaxJsonBytes, [handler](Connection& same, std::string body) {
          auto json = Json::Parse(body);
          if (!json) return same.ReplyError(json.error());
          Fields fields(*json);
          if (fields.error()) return same.ReplyError(*fields.error());
          handler(same, fields);
        });
      });
}

void FileCalls::Install() {
  archives_.Install();
  watches_.Install();
  auto get = [this](std::string_view path, void (FileCalls::*handler)(Connection&)) {
    server_.Route("GET", path, [this, handler](Connection& connection, std::string_view) {
      (this->*handler)(connection);
    });
  };
  get(kPathFileStat, &FileCalls::Stat);
  get(kPathFileList, &FileCalls::List);
  get(kPathFileLines, &FileCalls::Lines);
  server_.Route("GET", kPathFileContent, [this](Connection& connection, std::string_view) {
    GetFileContent(Context(), connection);
  });
  server_.Route("PUT", kPathFileContent, [this](Connection& connection, std::string_view) {
    PutFileContent(Context(), connection);
  });
  PostRoute(kPathFileEdit, [this](Connection& c, Fields& fields) { Edit(c, fields); });
  PostRoute(kPathFileMkdir, [this](Connection& c, Fields& fields) { MakeDir(c, fields); });
  PostRoute(kPathFileMove, [this](Connection& c, Fields& fields) { Move(c, fields); });
  PostRoute(kPathFileCopy, [this](Connection& c, Fields& fields) { Copy(c, fields); });
  PostRoute(kPathFileRemove, [this](Connection& c, Fields& fields) { Remove(c, fields); });
  server_.Route("POST", kPathFileUpload, [this](Connection& connection, std::string_view) {
    UploadFiles(Context(), connection);
  });
  PostRoute(kPathFileDownload,
            [this](Connection& c, Fields& fields) { DownloadFiles(Context(), c, fields); });
}

FileContentContext FileCalls::Context() const {
  return FileContentContext{loop_, server_, identity_, paths_, config_};
}

void FileCalls::Answer(Connection& connection, const std::string& path, const FileResult& result) {
  if (!result) {
    connection.ReplyError(result.error(), path);
  } else if (result->meta) {
    std::string extra(kHeaderMeta);
    extra += ": " + *result->meta + "\r\n";
    connection.Reply(200, kMediaBytes, result->body, extra);
  } else {
    connection.ReplyJson(200, result->body);
  }
}

void FileCalls::RunHere(Connection& connection, Effect effect, const std::string& path,
                        const Workers::Job& job) {
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  FileResult result = [&] {
    Identity::Scope scope(identity_);
    return job();
  }();
  // A change that was late is told as it is: its outcome is known.
  if (MonotonicMs() > *deadline && effect == Effect::kReads) {
    result = Fail(ErrorCode::kDeadlineExceeded, "the call did not end by its deadline");
  }
  Answer(connection, path, result);
}

void FileCalls::RunInWorker(Connection& connection, Effect effect, std::string path,
                            Workers::Job job, Workers::Authority authority) {
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  auto started = workers_.Start(
      *deadline, {paths_.work_dir_fd()}, job,
      [this, effect, path, id = connection.id()](WorkerFate fate, FileResult result) {
        if (fate != WorkerFate::kAnswered && effect == Effect::kChanges) {
          server_.MarkUnclean("a change of files did not end by its deadline");
          result = Fail(ErrorCode::kOutcomeUnknown, "what the call changed is not known");
        }
        if (Connection* same = server_.Find(id)) Answer(*same, path, result);
      },
      authority);
  if (!started) connection.ReplyError(started.error(), path);
}

void FileCalls::Stat(Connection& connection) {
  auto path = PathFromQuery(connection.request());
  if (!path) return connection.ReplyError(path.error());
  StatRequest request{*path, QueryFlag(connection.request(), "follow"),
                      QueryFlag(connection.request(), "media_type")};
  RunHere(connection, Effect::kReads, path->text, [&] { return StatFile(paths_, request); });
}

void FileCalls::List(Connection& connection) {
  const HttpRequest& http = connection.request();
  auto path = PathFromQuery(http);
  if (!path) return connection.ReplyError(path.error());
  auto limit = QueryInt(http, "limit", 1000, 0, 10'000);
  if (!limit) return connection.ReplyError(limit.error());
  ListRequest request{*path, static_cast<size_t>(*limit), {}, kLoopEntries};
  if (const std::string* after = http.Query("after")) request.after = *after;
  FileResult result = [&] {
    Identity::Scope scope(identity_);
    return ListDirectory(paths_, request);
  }();
  if (result || result.error().code != ErrorCode::kOverloaded) {
    return Answer(connection, path->text, result);
  }
  request.max_scan = SIZE_MAX;
  RunInWorker(connection, Effect::kReads, path->text,
              [this, request] { return ListDirectory(paths_, request); });
}

void FileCalls::Lines(Connection& connection) {
  const HttpRequest& http = connection.request();
  auto path = PathFromQuery(http);
  if (!path) return connection.ReplyError(path.error());
  LineWindowRequest request;
  constexpr int64_t kMaxBytes = 64 * 1024 * 1024 - 1024;  // what a worker may answer
  auto offset = QueryInt(http, "offset", 0, INT64_MIN + 1, INT64_MAX);
  auto limit = QueryInt(http, "limit", request.limit, 0, INT64_MAX);
  auto bytes = QueryInt(http, "max_bytes", 512'000, 0, kMaxBytes);
  auto line_bytes = QueryInt(http, "max_line_bytes", INT64_MAX, 1, INT64_MAX);
  for (const auto* number : {&offset, &limit, &bytes, &line_bytes}) {
    if (!*number) return connection.ReplyError(number->error());
  }
  request.offset = *offset;
  request.limit = *limit;
  request.max_bytes = static_cast<size_t>(*bytes);
  request.max_line_bytes = static_cast<size_t>(*line_bytes);
  if (const std::string* newline = http.Query("newline")) {
    request.keep_newlines = *newline == "keep";
    if (!request.keep_newlines) {
      return connection.ReplyError(
          Error{ErrorCode::kInvalidArgument, "`newline` must be keep or absent", {}, {}});
    }
  }
  Workers::Job job = [this, path = *path, request] { return FileLines(paths_, path, request); };
  int64_t size = [&] {
    Identity::Scope scope(identity_);
    return SizeOf(paths_, *path);
  }();
  if (size <= kLoopBytes) return RunHere(connection, Effect::kReads, path->text, job);
  RunInWorker(connection, Effect::kReads, path->text, job);
}

void FileCalls::Edit(Connection& connection, Fields& fields) {
  auto path = PathFromFields(fields, "path");
  if (!path) return connection.ReplyError(path.error());
  EditCall call;
  call.path = *path;
  call.edit.old_text = fields.Required("old");
  call.edit.new_text = fields.Required("new");
  call.edit.replace_all = fields.Bool("replace_all", false);
  call.edit.expected_count = fields.Int("expected_count", 1, INT64_MAX);
  call.if_match = fields.BytesOr("if_match", "");
  call.dry_run = fields.Bool("dry_run", false);
  std::string newline = fields.BytesOr("newline", "adapt");
  call.edit.adapt_newlines = newline == "adapt";
  if (newline != "adapt" && newline != "exact") {
    fields.Complain("`newline` must be exact or adapt");
  }
  if (fields.error()) return connection.ReplyError(*fields.error());
  int64_t size = [&] {
    Identity::Scope scope(identity_);
    return SizeOf(paths_, *path);
  }();
  Effect effect = call.dry_run ? Effect::kReads : Effect::kChanges;
  if (size <= kLoopBytes) {
    return RunHere(connection, effect, path->text,
                   [&] { return EditFile(paths_, call, &identity_); });
  }
  RunInWorker(connection, effect, path->text,
              [this, call] { return EditFile(paths_, call, nullptr); });
}

void FileCalls::MakeDir(Connection& connection, Fields& fields) {
  auto path = PathFromFields(fields, "path");
  if (!path) return connection.ReplyError(path.error());
  bool parents = fields.Bool("parents", false);
  auto mode = FieldMode(fields);
  if (!mode) return connection.ReplyError(mode.error());
  if (fields.error()) return connection.ReplyError(*fields.error());
  RunHere(connection, Effect::kChanges, path->text,
          [&] { return MakeDirectory(paths_, *path, parents, *mode); });
}

void FileCalls::Move(Connection& connection, Fields& fields) {
  auto from = PathFromFields(fields, "from");
  if (!from) return connection.ReplyError(from.error());
  auto to = PathFromFields(fields, "to");
  if (!to) return connection.ReplyError(to.error());
  bool overwrite = fields.Bool("overwrite", false);
  if (fields.error()) return connection.ReplyError(*fields.error());
  RunHere(connection, Effect::kChanges, from->text,
          [&] { return MoveFile(paths_, *from, *to, overwrite); });
}

void FileCalls::Remove(Connection& connection, Fields& fields) {
  auto path = PathFromFields(fields, "path");
  if (!path) return connection.ReplyError(path.error());
  bool recursive = fields.Bool("recursive", false);
  bool missing_ok = fields.Bool("missing_ok", false);
  if (fields.error()) return connection.ReplyError(*fields.error());
  Workers::Job job = [this, path = *path, recursive, missing_ok] {
    return RemoveFile(paths_, path, recursive, missing_ok);
  };
  bool plain = !recursive || [&] {
    Identity::Scope scope(identity_);
    return IsPlainRemoval(paths_, *path);
  }();
  if (plain) return RunHere(connection, Effect::kChanges, path->text, job);
  RunInWorker(connection, Effect::kChanges, path->text, job);
}

void FileCalls::Copy(Connection& connection, Fields& fields) {
  CopyCall call;
  auto from = PathFromFields(fields, "from");
  if (!from) return connection.ReplyError(from.error());
  auto to = PathFromFields(fields, "to");
  if (!to) return connection.ReplyError(to.error());
  call.from = *from;
  call.to = *to;
  call.overwrite = fields.Bool("overwrite", false);
  call.recursive = fields.Bool("recursive", false);
  if (fields.error()) return connection.ReplyError(*fields.error());
  RunInWorker(connection, Effect::kChanges, from->text,
              [this, call] { return CopyFiles(paths_, call); });
}

}  // namespace caisson::guest
