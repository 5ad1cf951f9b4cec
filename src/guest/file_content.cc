#include "guest/file_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "guest/file_calls.h"
#include "guest/json.h"
#include "guest/protocol.h"
#include "guest/replace.h"
#include "guest/sha256.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

Error DeadlineError() {
  return Error{ErrorCode::kDeadlineExceeded, "the call did not end by its deadline", {}, {}};
}

// Hashes a file in the loop, a piece a round.
class FileHasher {
 public:
  using Done = std::function<void(Result<std::string> hex)>;

  // `done` is called once, later; `fd` stays the caller's and open until then.
  static void Start(Loop& loop, int fd, int64_t deadline_ms, Done done) {
    auto* hasher = new FileHasher(loop, fd, deadline_ms, std::move(done));
    loop.Defer([hasher] { hasher->Step(); });
  }

 private:
  FileHasher(Loop& loop, int fd, int64_t deadline_ms, Done done)
      : loop_(loop), fd_(fd), deadline_ms_(deadline_ms), done_(std::move(done)) {}

  void Step() {
    constexpr size_t kPieces = 4;  // of 64 KiB: about a millisecond
    char buffer[64 * 1024];
    for (size_t i = 0; i < kPieces; i++) {
      ssize_t got = ::pread(fd_, buffer, sizeof buffer, static_cast<off_t>(offset_));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Finish(Fail(FileError(errno, "read")));
      if (got == 0) return Finish(hash_.HexDigest());
      hash_.Update(std::string_view(buffer, static_cast<size_t>(got)));
      offset_ += static_cast<uint64_t>(got);
    }
    if (MonotonicMs() > deadline_ms_) return Finish(Fail(DeadlineError()));
    loop_.Defer([this] { Step(); });
  }

  void Finish(Result<std::string> hex) {
    Done done = std::move(done_);
    delete this;
    done(std::move(hex));
  }

  Loop& loop_;
  const int fd_;
  const int64_t deadline_ms_;
  Done done_;
  Sha256 hash_;
  uint64_t offset_ = 0;
};

class FileSource : public BodySource {
 public:
  FileSource(const FileContentContext& context, uint64_t connection_id, UniqueFd file,
             ByteRange range, int64_t deadline_ms)
      : loop_(context.loop), file_(std::move(file)), range_(range) {
    // The length has been promised: what is late can only be cut.
    timer_ = loop_.After(std::max<int64_t>(deadline_ms - MonotonicMs(), 1),
                         [&server = context.server, connection_id] {
                           if (Connection* late = server.Find(connection_id)) late->Close();
                         });
  }
  ~FileSource() override { loop_.Cancel(timer_); }

  State Pull(std::string& out, size_t room) override {
    size_t want = static_cast<size_t>(std::min<uint64_t>(range_.length, room));
    size_t start = out.size();
    out.resize(start + want);
    ssize_t got = 0;
    do {
      got = want == 0
                ? 0
                : ::pread(file_.get(), out.data() + start, want, static_cast<off_t>(range_.first));
    } while (got < 0 && errno == EINTR);
    out.resize(start + (got > 0 ? static_cast<size_t>(got) : 0));
    if (want > 0 && got <= 0) return State::kAbort;
    range_.first += static_cast<uint64_t>(got);
    range_.length -= static_cast<uint64_t>(got);
    return range_.length == 0 ? State::kEnd : State::kMore;
  }

 private:
  Loop& loop_;
  UniqueFd file_;
  ByteRange range_;
  Loop::TimerId timer_;
};

void SendContent(const FileContentContext& context, Connection& connection, UniqueFd file,
                 const struct stat& status, std::optional<ByteRange> range, const std::string& hash,
                 int64_t deadline_ms) {
  auto size = static_cast<uint64_t>(status.st_size);
  JsonWriter meta;
  meta.BeginObject().Field("size_bytes", status.st_size);
  meta.Field("mode", OctalMode(status.st_mode & 07777));
  meta.Field("modified_at_ms", ModifiedAtMs(status));
  if (!hash.empty()) meta.Field("sha256", hash);
  meta.EndObject();
  std::string extra(kHeaderMeta);
  extra += ": " + meta.text() + "\r\n";
  ByteRange part = range.value_or(ByteRange{0, size});
  if (range) {
    extra += "Content-Range: bytes " + Decimal(static_cast<int64_t>(part.first)) + "-" +
             Decimal(static_cast<int64_t>(part.first + part.length - 1)) + "/" +
             Decimal(static_cast<int64_t>(size)) + "\r\n";
  }
  connection.ReplyStream(
      range ? 206 : 200, kMediaBytes, part.length,
      std::make_unique<FileSource>(context, connection.id(), std::move(file), part, deadline_ms),
      extra);
}

// A PUT under way. With `if_match`, the old content is hashed before the body is taken.
class PutSink : public BodySink {
 public:
  PutSink(const FileContentContext& context, uint64_t connection_id, std::string path,
          FileReplacement replacement, int64_t deadline_ms)
      : context_(context),
        connection_id_(connection_id),
        path_(std::move(path)),
        replacement_(std::move(replacement)),
        alive_(std::make_unique<Handle>(this)),
        deadline_(context, connection_id, deadline_ms, path_) {}

  ~PutSink() override {
    alive_->sink = nullptr;
    if (hashing_) (void)alive_.release();  // the hasher's answer frees it
    Identity::Scope scope(context_.identity);
    replacement_.reset();
  }

  void CheckHash(UniqueFd old_file, std::string expected, int64_t deadline_ms) {
    hashing_ = true;
    checked_ = true;
    int fd = old_file.release();
    FileHasher::Start(context_.loop, fd, deadline_ms,
                      [fd, handle = alive_.get(),
                       expected = std::move(expected)](const Result<std::string>& hex) {
                        ::close(fd);
                        if (handle->sink == nullptr) {
                          delete handle;
                          return;
                        }
                        handle->sink->Hashed(hex, expected);
                      });
  }

  size_t OnBody(Connection& connection, std::string_view bytes) override {
    if (hashing_) return 0;
    Result<void> written = replacement_->Write(bytes);
    if (!written) connection.ReplyError(written.error(), path_);
    return bytes.size();
  }

  void OnBodyEnd(Connection& connection) override {
    body_over_ = true;
    if (!hashing_) Complete(connection);
  }

 private:
  // Outlives the sink while a hash is being made for it.
  struct Handle {
    explicit Handle(PutSink* owner) : sink(owner) {}
    PutSink* sink;
  };

  Connection* Find() { return context_.server.Find(connection_id_); }

  void Hashed(const Result<std::string>& hex, const std::string& expected) {
    hashing_ = false;
    Connection* connection = Find();
    if (connection == nullptr) return;
    if (!hex) return connection->ReplyError(hex.error(), path_);
    if (*hex != expected) {
      return connection->ReplyError(
          Error{ErrorCode::kPreconditionFailed, "the file's hash is not `if_match`", {}, {}},
          path_);
    }
    if (body_over_) return Complete(*connection);
    connection->ResumeBody();
  }

  void Complete(Connection& connection) {
    Result<void> done = [&]() -> Result<void> {
      Identity::Scope scope(context_.identity);
      if (checked_) CAISSON_TRY(replacement_->CheckUnchanged());
      return replacement_->Commit();
    }();
    if (!done) return connection.ReplyError(done.error(), path_);
    JsonWriter json;
    json.BeginObject().Field("size_bytes", static_cast<int64_t>(replacement_->size()));
    json.Field("sha256", replacement_->HexDigest()).Flag("created", !replacement_->existed());
    json.EndObject();
    connection.ReplyJson(200, json.text());
  }

  FileContentContext context_;
  const uint64_t connection_id_;
  const std::string path_;
  std::optional<FileReplacement> replacement_;
  std::unique_ptr<Handle> alive_;
  bool hashing_ = false;
  bool checked_ = false;
  bool body_over_ = false;
  const BodyDeadline deadline_;
};

}  // namespace

BodyDeadline::BodyDeadline(const FileContentContext& context, uint64_t connection_id,
                           int64_t deadline_ms, std::optional<std::string> path)
    : loop_(context.loop) {
  timer_ = loop_.After(std::max<int64_t>(deadline_ms - MonotonicMs(), 1),
                       [this, connection_id, path = std::move(path), &server = context.server] {
                         timer_ = Loop::TimerId();
                         if (Connection* late = server.Find(connection_id))
                           late->ReplyError(DeadlineError(), path);
                       });
}

Result<ByteRange> ParseRange(std::string_view header, uint64_t size) {
  auto bad = [](const char* message) { return Fail(ErrorCode::kRangeNotSatisfiable, message); };
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return bad("the range's unit is not bytes");
  header.remove_prefix(kUnit.size());
  if (header.find(',') != std::string_view::npos) return bad("only one range is given");
  size_t dash = header.find('-');
  if (dash == std::string_view::npos) return bad("the range is malformed");
  std::string_view from = header.substr(0, dash);
  std::string_view to = header.substr(dash + 1);
  if (from.empty()) {
    auto count = ParseDecimal(to);
    if (!count) return bad("the range is malformed");
    if (*count == 0 || size == 0) return bad("the range lies outside the content");
    uint64_t length = std::min(*count, size);
    return ByteRange{size - length, length};
  }
  auto first = ParseDecimal(from);
  auto last = to.empty() ? std::optional<uint64_t>(UINT64_MAX) : ParseDecimal(to);
  if (!first || !last || *last < *first) return bad("the range is malformed");
  if (*first >= size) return bad("the range lies outside the content");
  return ByteRange{*first, std::min(*last, size - 1) - *first + 1};
}

void GetFileContent(const FileContentContext& context, Connection& connection) {
  const HttpRequest& http = connection.request();
  auto path = PathFromQuery(http);
  if (!path) return connection.ReplyError(path.error());
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  struct stat status{};
  auto file = [&] {
    Identity::Scope scope(context.identity);
    return context.paths.OpenRegular(*path, status);
  }();
  if (!file) return connection.ReplyError(file.error(), path->text);
  std::optional<ByteRange> range;
  if (const std::string* header = http.Header("range")) {
    auto parsed = ParseRange(*header, static_cast<uint64_t>(status.st_size));
    if (!parsed) return connection.ReplyError(parsed.error(), path->text);
    range = *parsed;
  }
  if (!QueryFlag(http, "hash")) {
    return SendContent(context, connection, *std::move(file), status, range, {}, *deadline);
  }
  int fd = file->release();
  FileHasher::Start(context.loop, fd, *deadline,
                    [context, fd, status, range, deadline = *deadline, text = path->text,
                     id = connection.id()](const Result<std::string>& hex) {
                      UniqueFd owned(fd);
                      Connection* same = context.server.Find(id);
                      if (same == nullptr) return;
                      if (!hex) return same->ReplyError(hex.error(), text);
                      SendContent(context, *same, std::move(owned), status, range, *hex, deadline);
                    });
}

void PutFileContent(const FileContentContext& context, Connection& connection) {
  const HttpRequest& http = connection.request();
  auto path = PathFromQuery(http);
  if (!path) return connection.ReplyError(path.error());
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  ReplaceOptions options;
  options.create_only = QueryFlag(http, "create_only");
  options.parents = QueryFlag(http, "parents");
  if (const std::string* mode = http.Query("mode")) {
    options.mode = ParseOctalMode(*mode);
    if (!options.mode) {
      return connection.ReplyError(
          Error{ErrorCode::kInvalidArgument, "`mode` must be octal digits", {}, {}});
    }
  }
  const std::string* if_match = http.Query("if_match");
  UniqueFd old_file;
  auto replacement = [&]() -> Result<FileReplacement> {
    Identity::Scope scope(context.identity);
    CAISSON_ASSIGN(auto begun,
                   FileReplacement::Begin(context.paths, *path, options, &context.identity));
    if (if_match != nullptr) {
      if (!begun.existed()) return Fail(ErrorCode::kPreconditionFailed, "there is no such file");
      CAISSON_ASSIGN(old_file, begun.OpenExisting());
    }
    return begun;
  }();
  if (!replacement) return connection.ReplyError(replacement.error(), path->text);
  auto sink = std::make_unique<PutSink>(context, connection.id(), path->text,
                                        *std::move(replacement), *deadline);
  if (old_file) sink->CheckHash(std::move(old_file), *if_match, *deadline);
  connection.TakeStream(std::move(sink));
}

}  // namespace caisson::guest
