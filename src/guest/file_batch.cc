#include "guest/file_batch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guest/file_calls.h"
#include "guest/protocol.h"
#include "guest/records.h"
#include "guest/replace.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

Error TooManyFiles(int64_t limit) {
  return Error{
      ErrorCode::kTooManyFiles, "the batch has more than " + Decimal(limit) + " files", {}, {}};
}
Error OverFileLimit(int64_t limit) {
  return Error{ErrorCode::kFileTooLarge, "the file exceeds " + Decimal(limit) + " bytes", {}, {}};
}
Error OverTotalLimit(int64_t limit) {
  return Error{ErrorCode::kFileTooLarge,
               "the file exceeds what is left of the batch's " + Decimal(limit) + " bytes",
               {},
               {}};
}

// More than the sandbox's caps is refused: a caller that counts on its limits must not get lower
// ones.
Result<BatchLimits> WithinCaps(const BatchLimits& limits, const BatchLimits& caps) {
  auto check = [](const char* name, int64_t value, int64_t cap) -> Result<void> {
    if (value <= cap) return {};
    return Fail(ErrorCode::kTransferLimitsNotPermitted,
                std::string("`") + name + "` is " + Decimal(value) + ", and this sandbox's is " +
                    Decimal(cap));
  };
  CAISSON_TRY(check("max_files", limits.max_files, caps.max_files));
  CAISSON_TRY(check("max_file_bytes", limits.max_file_bytes, caps.max_file_bytes));
  CAISSON_TRY(check("max_total_bytes", limits.max_total_bytes, caps.max_total_bytes));
  return limits;
}

Result<BatchLimits> LimitsFromQuery(const HttpRequest& http, const BatchLimits& caps) {
  BatchLimits limits = caps;
  CAISSON_ASSIGN(limits.max_files, QueryInt(http, "max_files", limits.max_files, 0, INT64_MAX));
  CAISSON_ASSIGN(limits.max_file_bytes,
                 QueryInt(http, "max_file_bytes", limits.max_file_bytes, 0, INT64_MAX));
  CAISSON_ASSIGN(limits.max_total_bytes,
                 QueryInt(http, "max_total_bytes", limits.max_total_bytes, 0, INT64_MAX));
  return WithinCaps(limits, caps);
}

// An upload under way: files are staged as they come and put in their places at the end.
class UploadSink : public BodySink {
 public:
  UploadSink(const FileContentContext& context, uint64_t connection_id, PathRoot root, bool parents,
             const BatchLimits& limits, int64_t deadline_ms)
      : context_(context),
        root_(root),
        parents_(parents),
        limits_(limits),
        deadline_(context, connection_id, deadline_ms) {}

  ~UploadSink() override {
    Identity::Scope scope(context_.identity);
    items_.clear();
  }

  size_t OnBody(Connection& connection, std::string_view bytes) override {
    size_t size = bytes.size();
    Result<bool> more = true;
    while (more && *more) more = Take(bytes);
    if (!more) connection.ReplyError(more.error());
    return size;
  }

  void OnBodyEnd(Connection& connection) override {
    if (!reader_.between()) {
      return connection.ReplyError(Malformed("the body ends in the middle of a record"));
    }
    std::string results;
    Identity::Scope scope(context_.identity);
    for (Item& item : items_) {
      if (!item.error) {
        Result<void> committed = item.replacement->Commit();
        if (!committed) item.error = committed.error();
      }
      if (!results.empty()) results += ',';
      if (item.error) {
        results += ErrorBody(*item.error, item.path.text);
        continue;
      }
      JsonWriter json;
      json.BeginObject().Bytes("path", item.path.text).Field("size_bytes", item.size).EndObject();
      results += json.text();
    }
    connection.ReplyJson(200, "{\"results\":[" + results + "]}");
  }

 private:
  struct Item {
    FilePath path;
    int64_t size = 0;
    std::optional<FileReplacement> replacement;
    std::optional<Error> error;
  };

  static Error Malformed(const char* message) {
    return Error{ErrorCode::kInvalidArgument, message, {}, {}};
  }

  // False when the bytes are used up.
  Result<bool> Take(std::string_view& bytes) {
    using Kind = RecordReader::Step::Kind;
    CAISSON_ASSIGN(RecordReader::Step step, reader_.Next(bytes));
    bool file = step.header.type == RecordType::kFile;
    if (step.kind == Kind::kBegin) {
      if (!file && step.header.type != RecordType::kFileBytes) {
        return Fail(Malformed("a batch consists of records of types 16 and 17"));
      }
      if (!file && items_.empty()) return Fail(Malformed("bytes come before the first file"));
      text_.clear();
    } else if (step.kind == Kind::kBytes && file) {
      text_ += step.part;
    } else if (step.kind == Kind::kBytes) {
      Write(items_.back(), step.part);
    } else if (step.kind == Kind::kEnd && file) {
      CAISSON_TRY(BeginFile());
    }
    return step.kind != Kind::kNone;
  }

  // An error here is the batch's; what is wrong with the file alone goes into its item.
  Result<void> BeginFile() {
    if (static_cast<int64_t>(items_.size()) >= limits_.max_files) {
      return Fail(TooManyFiles(limits_.max_files));
    }
    CAISSON_ASSIGN(Json json, Json::Parse(text_));
    Fields fields(json);
    Item item;
    item.path = FilePath{fields.Required("path"), root_};
    std::optional<std::string> mode_text = fields.Bytes("mode");
    if (fields.error()) return Fail(*fields.error());
    ReplaceOptions options;
    options.parents = parents_;
    if (mode_text) {
      options.mode = ParseOctalMode(*mode_text);
      if (!options.mode) return Fail(Malformed("`mode` must be octal digits"));
    }
    Identity::Scope scope(context_.identity);
    auto begun = [&]() -> Result<FileReplacement> {
      CAISSON_TRY(CheckPath(item.path));
      return FileReplacement::Begin(context_.paths, item.path, options, &context_.identity);
    }();
    if (begun) {
      item.replacement.emplace(*std::move(begun));
    } else {
      item.error = begun.error();
    }
    items_.push_back(std::move(item));
    return {};
  }

  void Write(Item& item, std::string_view bytes) {
    if (item.error) return;
    auto size = static_cast<int64_t>(bytes.size());
    if (item.size + size > limits_.max_file_bytes) {
      return Refuse(item, OverFileLimit(limits_.max_file_bytes));
    }
    if (total_ + size > limits_.max_total_bytes) {
      return Refuse(item, OverTotalLimit(limits_.max_total_bytes));
    }
    item.size += size;
    total_ += size;
    Result<void> written = item.replacement->Write(bytes);
    if (!written) Refuse(item, written.error());
  }

  // Its place and its share of the total are free again.
  void Refuse(Item& item, Error error) {
    total_ -= item.size;
    item.error = std::move(error);
    Identity::Scope scope(context_.identity);
    item.replacement.reset();
  }

  FileContentContext context_;
  const PathRoot root_;
  const bool parents_;
  const BatchLimits limits_;
  RecordReader reader_;
  std::string text_;  // of a file's record
  std::vector<Item> items_;
  int64_t total_ = 0;
  const BodyDeadline deadline_;
};

class DownloadSource : public BodySource {
 public:
  DownloadSource(const FileContentContext& context, std::vector<FilePath> paths,
                 const BatchLimits& limits, int64_t deadline_ms)
      : context_(context), paths_(std::move(paths)), limits_(limits), deadline_ms_(deadline_ms) {}

  State Pull(std::string& out, size_t room) override {
    size_t full = out.size() + room;
    while (out.size() < full) {
      if (next_ == paths_.size()) {
        AppendRecord(out, RecordType::kBatchEnd, 0, "{}");
        return State::kEnd;
      }
      Result<void> done = MonotonicMs() > deadline_ms_ ? Fail(ErrorCode::kDeadlineExceeded,
                                                              "it was not read by the deadline")
                          : file_                      ? Continue(out, full - out.size())
                                                       : Begin(out);
      if (!done) {
        AppendRecord(out, RecordType::kFileError, offset_,
                     ErrorBody(done.error(), paths_[next_].text));
        Next();
      }
    }
    return State::kMore;
  }

 private:
  Result<void> Begin(std::string& out) {
    const FilePath& path = paths_[next_];
    struct stat status{};
    {
      Identity::Scope scope(context_.identity);
      CAISSON_TRY(CheckPath(path));
      CAISSON_ASSIGN(file_, context_.paths.OpenRegular(path, status));
    }
    if (status.st_size > limits_.max_file_bytes) {
      return Fail(OverFileLimit(limits_.max_file_bytes));
    }
    if (total_ + status.st_size > limits_.max_total_bytes) {
      return Fail(OverTotalLimit(limits_.max_total_bytes));
    }
    total_ += status.st_size;
    left_ = status.st_size;
    JsonWriter json;
    json.BeginObject().Bytes("path", path.text).Field("size_bytes", left_);
    json.Field("mode", OctalMode(status.st_mode & 07777));
    json.Field("modified_at_ms", ModifiedAtMs(status)).EndObject();
    AppendRecord(out, RecordType::kFile, 0, json.text());
    if (left_ == 0) Next();
    return {};
  }

  Result<void> Continue(std::string& out, size_t room) {
    size_t want = std::min({static_cast<size_t>(left_), room, kMaxRecordBytes});
    buffer_.resize(want);
    ssize_t got = 0;
    do {
      got = ::pread(file_.get(), buffer_.data(), want, static_cast<off_t>(offset_));
    } while (got < 0 && errno == EINTR);
    if (got < 0) return Fail(FileError(errno, "read"));
    if (got == 0) return Fail(ErrorCode::kConflict, "the file shrank while it was read");
    std::string_view part(buffer_.data(), static_cast<size_t>(got));
    AppendRecord(out, RecordType::kFileBytes, offset_, part);
    offset_ += part.size();
    left_ -= got;
    if (left_ == 0) Next();
    return {};
  }

  void Next() {
    file_.reset();
    offset_ = 0;
    next_++;
  }

  FileContentContext context_;
  const std::vector<FilePath> paths_;
  const BatchLimits limits_;
  const int64_t deadline_ms_;
  size_t next_ = 0;
  UniqueFd file_;  // of paths_[next_], once begun
  uint64_t offset_ = 0;
  int64_t left_ = 0;
  int64_t total_ = 0;
  std::string buffer_;
};

}  // namespace

void UploadFiles(const FileContentContext& context, Connection& connection) {
  const HttpRequest& http = connection.request();
  auto limits = LimitsFromQuery(http, context.config.upload);
  if (!limits) return connection.ReplyError(limits.error());
  const std::string* root_name = http.Query("root");
  auto root = ParseRoot(root_name == nullptr ? std::string_view() : *root_name);
  if (!root) return connection.ReplyError(root.error());
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  connection.TakeStream(std::make_unique<UploadSink>(
      context, connection.id(), *root, QueryFlag(http, "parents"), *limits, *deadline));
}

void DownloadFiles(const FileContentContext& context, Connection& connection, Fields& fields) {
  const BatchLimits& caps = context.config.download;
  BatchLimits limits = caps;
  limits.max_files = fields.IntOr("max_files", limits.max_files, 0, INT64_MAX);
  limits.max_file_bytes = fields.IntOr("max_file_bytes", limits.max_file_bytes, 0, INT64_MAX);
  limits.max_total_bytes = fields.IntOr("max_total_bytes", limits.max_total_bytes, 0, INT64_MAX);
  std::string root_name = fields.BytesOr("root", "");
  const Json* list = fields.Member("paths", Json::Type::kArray);
  if (list == nullptr) fields.Complain("`paths` must be an array of paths");
  if (fields.error()) return connection.ReplyError(*fields.error());
  auto allowed = WithinCaps(limits, caps);
  if (!allowed) return connection.ReplyError(allowed.error());
  auto root = ParseRoot(root_name);
  if (!root) return connection.ReplyError(root.error());
  if (static_cast<int64_t>(list->items().size()) > limits.max_files) {
    return connection.ReplyError(TooManyFiles(limits.max_files));
  }
  std::vector<FilePath> paths;
  for (const Json& item : list->items()) {
    if (item.is(Json::Type::kString)) {
      paths.push_back(FilePath{item.AsString(), *root});
      continue;
    }
    // {"path_base64"}, for a name that is no UTF-8
    Fields one(item);
    paths.push_back(FilePath{one.Required("path"), *root});
    if (one.error()) return connection.ReplyError(*one.error());
  }
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  connection.ReplyStream(
      200, kMediaRecords, std::nullopt,
      std::make_unique<DownloadSource>(context, std::move(paths), limits, *deadline));
}

}  // namespace caisson::guest
