#include "guest/worker_stream.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/syscall.h"

namespace caisson::guest {

class WorkerStreams::Source : public BodySource {
 public:
  Source(WorkerStreams& streams, uint64_t id) : streams_(streams), id_(id) {}
  ~Source() override { streams_.Drop(id_); }

  State Pull(std::string& out, size_t room) override {
    Transfer& transfer = *streams_.transfers_.at(id_);
    int fd = transfer.pipe.get();
    size_t start = out.size();
    out.resize(start + room);
    ssize_t got = 0;
    do {
      got = ::read(fd, out.data() + start, room);
    } while (got < 0 && errno == EINTR);
    out.resize(start + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got > 0) return State::kMore;
    if (got < 0 && errno == EAGAIN) {
      auto resume = [this](uint32_t) {
        Transfer& waiting = *streams_.transfers_.at(id_);
        streams_.loop_.Forget(waiting.pipe.get());
        Connection* connection = streams_.server_.Find(waiting.connection_id);
        if (connection != nullptr) connection->ResumeReply();
      };
      return streams_.loop_.Watch(fd, EPOLLIN, resume) ? State::kWait : State::kAbort;
    }
    // The end of the bytes is the body's only if the worker says so.
    if (!transfer.verdict) return State::kWait;
    return transfer.verdict->has_value() ? State::kEnd : State::kAbort;
  }

 private:
  WorkerStreams& streams_;
  const uint64_t id_;
};

void WorkerStreams::Drop(uint64_t id) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  loop_.Forget(found->second->pipe.get());
  transfers_.erase(found);
}

void WorkerStreams::Start(Connection& connection, std::string path, int64_t deadline_ms,
                          std::string_view media_type, int keep, const Job& job) {
  auto pipe = MakePipe();
  if (!pipe) return connection.ReplyError(pipe.error());
  uint64_t id = next_++;
  int out = pipe->write.get();
  auto started = workers_.Start(
      deadline_ms, {keep, out}, [&job, out] { return job(out); },
      [this, id](WorkerFate, FileResult result) { OnDone(id, std::move(result)); });
  if (!started) return connection.ReplyError(started.error(), path);
  auto transfer = std::make_unique<Transfer>();
  transfer->connection_id = connection.id();
  transfer->path = std::move(path);
  transfer->media_type = media_type;
  transfer->pipe = std::move(pipe->read);
  int in = transfer->pipe.get();
  ::fcntl(in, F_SETFL, O_NONBLOCK);
  transfers_.emplace(id, std::move(transfer));
  // The reply begins with the first bytes: until then it may still be an error.
  auto watched = loop_.Watch(in, EPOLLIN, [this, id](uint32_t) { OnReadable(id); });
  if (!watched) {
    connection.ReplyError(watched.error(), transfers_.at(id)->path);
    Drop(id);
  }
}

void WorkerStreams::OnReadable(uint64_t id) {
  Transfer& transfer = *transfers_.at(id);
  loop_.Forget(transfer.pipe.get());
  int available = 0;
  ::ioctl(transfer.pipe.get(), FIONREAD, &available);
  if (available == 0) return;  // nothing came: the worker's answer will say why
  Connection* connection = server_.Find(transfer.connection_id);
  if (connection == nullptr) return Drop(id);
  transfer.streaming = true;
  connection->ReplyStream(200, transfer.media_type, std::nullopt,
                          std::make_unique<Source>(*this, id));
}

void WorkerStreams::OnDone(uint64_t id, FileResult result) {
  auto found = transfers_.find(id);
  if (found == transfers_.end()) return;  // the stream broke
  Transfer& transfer = *found->second;
  transfer.verdict = std::move(result);
  Connection* connection = server_.Find(transfer.connection_id);
  if (connection == nullptr) return transfer.streaming ? void() : Drop(id);
  if (transfer.streaming) return connection->ResumeReply();
  if (*transfer.verdict) return;  // its bytes are still in the pipe
  connection->ReplyError(transfer.verdict->error(), transfer.path);
  Drop(id);
}

}  // namespace caisson::guest
