#include "guest/set_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "base/syscall.h"
#include "guest/json.h"
#include "guest/protocol.h"
#include "guest/sets.h"
#include "guest/sha256.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

// A content under way; it has its name when it is whole and has the hash that was said.
class BlobSink : public BodySink {
 public:
  BlobSink(const FileContentContext& context, uint64_t connection_id, UniqueFd file,
           std::string beside, std::string blob, std::string sha256, int64_t deadline_ms)
      : file_(std::move(file)),
        beside_(std::move(beside)),
        blob_(std::move(blob)),
        sha256_(std::move(sha256)),
        deadline_(context, connection_id, deadline_ms) {}
  ~BlobSink() override {
    if (!beside_.empty()) (void)::unlink(beside_.c_str());
  }

  size_t OnBody(Connection& connection, std::string_view bytes) override {
    hash_.Update(bytes);
    size_ += static_cast<int64_t>(bytes.size());
    Result<void> written = WriteAll(file_.get(), bytes);
    if (!written) connection.ReplyError(written.error());
    return bytes.size();
  }

  void OnBodyEnd(Connection& connection) override {
    if (hash_.HexDigest() != sha256_) {
      return connection.ReplyError(
          Error{ErrorCode::kPreconditionFailed, "the content's hash is not `sha256`", {}, {}});
    }
    if (::rename(beside_.c_str(), blob_.c_str()) != 0) {
      return connection.ReplyError(FileError(errno, "rename"));
    }
    beside_.clear();
    JsonWriter json;
    json.BeginObject().Field("size_bytes", size_).EndObject();
    connection.ReplyJson(200, json.text());
  }

 private:
  UniqueFd file_;
  std::string beside_;
  const std::string blob_;
  const std::string sha256_;
  Sha256 hash_;
  int64_t size_ = 0;
  const BodyDeadline deadline_;
};

}  // namespace

Result<std::unique_ptr<SetCalls>> SetCalls::Open(const FileContentContext& context,
                                                 FileCalls& files) {
  if (!context.config.sets.empty() && !context.identity.separate()) {
    return Fail(ErrorCode::kInvalidConfig,
                "`sets` cannot be kept from commands that are the guest's own user");
  }
  for (const SetPlace& set : context.config.sets) CAISSON_TRY(OpenSet(set));
  std::unique_ptr<SetCalls> calls(new SetCalls(context, files));
  calls->Install();
  return calls;
}

void SetCalls::Install() {
  Server& server = context_.server;
  server.Route("GET", kPathSets, [this](Connection& c, std::string_view) { Describe(c); });
  server.Route("PUT", kPathSetBlob, [this](Connection& c, std::string_view) { PutBlob(c); });
  files_.PostRoute(kPathSetApply, [this](Connection& c, Fields& fields) { Apply(c, fields); });
}

const SetPlace* SetCalls::Find(Connection& connection, const std::string& path) const {
  for (const SetPlace& set : context_.config.sets) {
    if (set.path == path) return &set;
  }
  connection.ReplyError(
      Error{ErrorCode::kFileNotFound, "the sandbox has no read-only set there", {}, {}}, path);
  return nullptr;
}

void SetCalls::Describe(Connection& connection) {
  auto path = PathFromQuery(connection.request());
  if (!path) return connection.ReplyError(path.error());
  const SetPlace* set = Find(connection, path->text);
  if (set == nullptr) return;
  connection.ReplyJson(200, DescribeSet(*set)->body);
}

void SetCalls::PutBlob(Connection& connection) {
  auto path = PathFromQuery(connection.request());
  if (!path) return connection.ReplyError(path.error());
  const SetPlace* set = Find(connection, path->text);
  if (set == nullptr) return;
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  const std::string* sha256 = connection.request().Query("sha256");
  if (sha256 == nullptr || !IsSha256(*sha256)) {
    return connection.ReplyError(
        Error{ErrorCode::kInvalidArgument, "`sha256` must be 64 digits of lower-case hex", {}, {}});
  }
  std::string blob = BlobPath(*set, *sha256);
  std::string beside = blob + "." + Decimal(static_cast<int64_t>(connection.id()));
  UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444));
  if (!file) return connection.ReplyError(FileError(errno, "create"), path->text);
  connection.TakeStream(std::make_unique<BlobSink>(context_, connection.id(), std::move(file),
                                                   std::move(beside), std::move(blob), *sha256,
                                                   *deadline));
}

void SetCalls::Apply(Connection& connection, Fields& fields) {
  std::string path = fields.Required("path");
  const Json* list = fields.Member("files", Json::Type::kArray);
  if (list == nullptr) fields.Complain("`files` must be an array");
  if (list == nullptr || fields.error()) return connection.ReplyError(*fields.error());
  const SetPlace* set = Find(connection, path);
  if (set == nullptr) return;
  auto files = ReadSetFiles(*list);
  if (!files) return connection.ReplyError(files.error(), path);
  // Cut off by its deadline it has shown all or nothing, and may be repeated.
  files_.RunInWorker(
      connection, FileCalls::Effect::kReads, path,
      [this, set, files = *std::move(files)] { return ApplySet(context_.paths, *set, files); },
      Workers::Authority::kGuest);
}

}  // namespace caisson::guest
