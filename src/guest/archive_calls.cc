#include "guest/archive_calls.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/syscall.h"
#include "guest/archive.h"
#include "guest/file_calls.h"
#include "guest/protocol.h"

namespace caisson::guest {
namespace {

// What a worker that unpacks has after its archive has ended or is late, to say what it did.
constexpr int64_t kUnpackGraceMs = 10'000;

}  // namespace

// What the unpacking worker reads.
class ArchiveCalls::Sink : public BodySink {
 public:
  Sink(ArchiveCalls& calls, uint64_t id, int64_t deadline_ms) : calls_(calls), id_(id) {
    timer_ = calls_.loop_.After(std::max<int64_t>(deadline_ms - MonotonicMs(), 1), [this] {
      timer_ = Loop::TimerId();
      transfer().late = true;
      ClosePipe();
    });
  }
  ~Sink() override {
    calls_.loop_.Cancel(timer_);
    ClosePipe();
    transfer().streaming = false;
    if (transfer().verdict) calls_.Drop(id_);
  }

  size_t OnBody(Connection&, std::string_view bytes) override {
    size_t taken = 0;
    while (taken < bytes.size()) {
      if (!transfer().pipe) return bytes.size();
      ssize_t wrote = ::write(transfer().pipe.get(), bytes.data() + taken, bytes.size() - taken);
      if (wrote >= 0) {
        taken += static_cast<size_t>(wrote);
      } else if (errno == EAGAIN) {
        if (AwaitRoom()) return taken;
        ClosePipe();
      } else if (errno != EINTR) {
        // The worker has seen the archive's end, or what is wrong with it: the rest is of no use.
        ClosePipe();
      }
    }
    return taken;
  }

  void OnBodyEnd(Connection&) override {
    calls_.loop_.Cancel(timer_);
    ClosePipe();
    transfer().body_over = true;
    if (transfer().verdict) calls_.Answer(transfer());
  }

 private:
  Transfer& transfer() { return *calls_.transfers_.at(id_); }
  void ClosePipe() {
    if (!transfer().pipe) return;
    calls_.loop_.Forget(transfer().pipe.get());
    transfer().pipe.reset();
  }
  bool AwaitRoom() {
    auto resume = [this](uint32_t) {
      calls_.loop_.Forget(transfer().pipe.get());
      Connection* connection = calls_.server_.Find(transfer().connection_id);
      if (connection != nullptr) connection->ResumeBody();
    };
    return calls_.loop_.Watch(transfer().pipe.get(), EPOLLOUT, resume).has_value();
  }

  ArchiveCalls& calls_;
  const uint64_t id_;
  Loop::TimerId timer_;
};

void ArchiveCalls::Install() {
  server_.Route("GET", kPathFileArchive,
                [this](Connection& connection, std::string_view) { Pack(connection); });
  server_.Route("PUT", kPathFileArchive,
                [this](Connection& connection, std::string_view) { Unpack(connection); });
}

void ArchiveCalls::Drop(uint64_t id) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  if (found->second->pipe) loop_.Forget(found->second->pipe.get());
  transfers_.erase(found);
}

void ArchiveCalls::Pack(Connection& connection) {
  auto path = PathFromQuery(connection.request());
  if (!path) return connection.ReplyError(path.error());
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  PackCall call{*path, QueryFlag(connection.request(), "skip_unreadable")};
  packing_.Start(connection, path->text, *deadline, kMediaTar, paths_.work_dir_fd(),
                 [this, call](int out) { return PackTree(paths_, call, out); });
}

void ArchiveCalls::Unpack(Connection& connection) {
  const HttpRequest& http = connection.request();
  auto path = PathFromQuery(http);
  if (!path) return connection.ReplyError(path.error());
  auto deadline = CallDeadline(connection);
  if (!deadline) return connection.ReplyError(deadline.error());
  auto entries = QueryInt(http, "max_entries", kArchiveEntries, 0, kMaxArchiveEntries);
  auto bytes = QueryInt(http, "max_total_bytes", kArchiveBytes, 0, INT64_MAX);
  for (const auto* number : {&entries, &bytes}) {
    if (!*number) return connection.ReplyError(number->error());
  }
  UnpackCall call{*path, QueryFlag(http, "create_only"), *entries, *bytes};
  auto pipe = MakePipe();
  if (!pipe) return connection.ReplyError(pipe.error());
  uint64_t id = next_++;
  int in = pipe->read.get();
  auto started = workers_.Start(
      *deadline + kUnpackGraceMs, {paths_.work_dir_fd(), in},
      [this, call, in] { return UnpackTree(paths_, call, in); },
      [this, id](WorkerFate fate, FileResult result) { OnUnpacked(id, fate, std::move(result)); });
  if (!started) return connection.ReplyError(started.error(), path->text);
  auto transfer = std::make_unique<Transfer>();
  transfer->connection_id = connection.id();
  transfer->path = path->text;
  transfer->pipe = std::move(pipe->write);
  transfer->streaming = true;
  ::fcntl(transfer->pipe.get(), F_SETFL, O_NONBLOCK);
  transfers_.emplace(id, std::move(transfer));
  connection.TakeStream(std::make_unique<Sink>(*this, id, *deadline));
}

void ArchiveCalls::OnUnpacked(uint64_t id, WorkerFate fate, FileResult result) {
  Transfer& transfer = *transfers_.at(id);
  if (fate != WorkerFate::kAnswered) {
    server_.MarkUnclean("unpacking an archive did not end by its deadline");
    result = Fail(ErrorCode::kOutcomeUnknown, "what was unpacked is not known");
  } else if (transfer.late && !result) {
    result.error().code = ErrorCode::kDeadlineExceeded;
    result.error().message =
        "the archive did not arrive by its deadline: " + result.error().message;
  }
  transfer.verdict = std::move(result);
  if (!transfer.streaming) return Drop(id);
  // A whole archive is answered when all of the body has been taken; what is wrong with it at once.
  if (!*transfer.verdict || transfer.body_over || transfer.late) Answer(transfer);
}

void ArchiveCalls::Answer(Transfer& transfer) {
  Connection* connection = server_.Find(transfer.connection_id);
  if (connection == nullptr) return;
  const FileResult& verdict = *transfer.verdict;
  if (verdict) {
    connection->ReplyJson(200, verdict->body);
  } else {
    connection->ReplyError(verdict.error(), transfer.path);
  }
}

}  // namespace caisson::guest
