#include "guest/exec_stream.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "guest/json.h"

namespace caisson::guest {
namespace {

constexpr char kEndOfFile = 4;  // VEOF of a new terminal

std::string GapJson(uint64_t skipped, std::string_view reason) {
  JsonWriter json;
  json.BeginObject().Field("skipped_bytes", static_cast<int64_t>(skipped));
  json.Field("reason", reason).EndObject();
  return json.Take();
}

const Error& EndedError() {
  static const Error error{
      ErrorCode::kExecEnded, "the command has closed its stdin or ended", {}, {}};
  return error;
}

}  // namespace

OutputReader::OutputReader(Server& server, Loop& loop, uint64_t connection_id, Exec& exec,
                           uint64_t after)
    : server_(server),
      loop_(loop),
      connection_id_(connection_id),
      exec_(&exec),
      position_(after),
      last_record_ms_(MonotonicMs()) {
  exec.AddReader(this);
  StartTimer();
}

OutputReader::~OutputReader() {
  loop_.Cancel(timer_);
  if (exec_ != nullptr) exec_->RemoveReader(this);
}

void OutputReader::StartTimer() {
  int64_t due = last_record_ms_ + kKeepAliveMs - MonotonicMs();
  timer_ = loop_.After(std::max<int64_t>(due, 1), [this] {
    timer_ = Loop::TimerId();
    if (MonotonicMs() - last_record_ms_ >= kKeepAliveMs) {
      keep_alive_due_ = true;
      Wake();
    }
    StartTimer();
  });
}

void OutputReader::Wake() {
  if (Connection* connection = server_.Find(connection_id_)) connection->ResumeReply();
}

void OutputReader::Detach() {
  exec_ = nullptr;
  Wake();
}

BodySource::State OutputReader::Pull(std::string& out, size_t room) {
  if (exec_ == nullptr) return State::kAbort;
  size_t start = out.size();
  State state = State::kMore;
  if (!started_sent_) {
    started_sent_ = true;
    AppendRecord(out, RecordType::kStarted, 0, exec_->StartedJson());
  }
  while (out.size() - start < room) {
    OutputLog::Step step = exec_->log().Next(position_, kMaxRecordBytes);
    using Kind = OutputLog::Step::Kind;
    if (step.kind == Kind::kData) {
      AppendRecord(out, step.piece.type, position_, step.piece.bytes);
      position_ += step.piece.bytes.size();
    } else if (step.kind != Kind::kNothing) {
      AppendRecord(
          out, RecordType::kGap, position_,
          GapJson(step.skipped, step.kind == Kind::kGapLimit ? "output_limit" : "not_kept"));
      position_ += step.skipped;
    } else if (exec_->ended()) {
      AppendRecord(out, RecordType::kExit, position_, exec_->exit_json());
      state = State::kEnd;
      break;
    } else {
      if (keep_alive_due_ && out.size() == start) {
        AppendRecord(out, RecordType::kKeepAlive, position_, {});
      }
      state = State::kWait;
      break;
    }
  }
  if (out.size() > start) {
    last_record_ms_ = MonotonicMs();
    keep_alive_due_ = false;
    exec_->ReaderMoved();
  }
  return state;
}

BodySource::State KeptSource::Pull(std::string& out, size_t room) {
  auto want = static_cast<size_t>(std::min<int64_t>(left_, static_cast<int64_t>(room)));
  size_t start = out.size();
  out.resize(start + want);
  ssize_t got = 0;
  do {
    got = ::pread(file_.get(), out.data() + start, want, offset_);
  } while (got < 0 && errno == EINTR);
  out.resize(start + (got > 0 ? static_cast<size_t>(got) : 0));
  if (want > 0 && got <= 0) return State::kAbort;
  offset_ += got;
  left_ -= got;
  return left_ == 0 ? State::kEnd : State::kMore;
}

StdinSink::StdinSink(Server& server, Loop& loop, uint64_t connection_id, Exec& exec, bool eof)
    : server_(server), loop_(loop), connection_id_(connection_id), exec_(&exec), eof_(eof) {
  exec.stdin_writer() = this;
}

StdinSink::~StdinSink() {
  if (exec_ == nullptr) return;
  exec_->stdin_writer() = nullptr;
  if (exec_->stdin_fd()) loop_.Forget(exec_->stdin_fd().get());
}

void StdinSink::ExecEnded() {
  exec_->stdin_writer() = nullptr;
  exec_ = nullptr;
  if (!waiting_) return;  // all that came is in the pipe, and perhaps nothing more comes
  if (Connection* connection = server_.Find(connection_id_)) connection->ReplyError(EndedError());
}

size_t StdinSink::OnBody(Connection& connection, std::string_view bytes) {
  if (exec_ == nullptr || !exec_->stdin_fd()) {
    connection.ReplyError(EndedError());
    return bytes.size();
  }
  int fd = exec_->stdin_fd().get();
  size_t taken = 0;
  while (taken < bytes.size()) {
    ssize_t written = ::write(fd, bytes.data() + taken, bytes.size() - taken);
    if (written >= 0) {
      taken += static_cast<size_t>(written);
      accepted_ += written;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      auto watched = loop_.Watch(fd, EPOLLOUT, [this, fd](uint32_t) {
        loop_.Forget(fd);
        waiting_ = false;
        if (Connection* waiting = server_.Find(connection_id_)) waiting->ResumeBody();
      });
      waiting_ = watched.has_value();
      if (watched) return taken;
    }
    exec_->CloseStdin();  // nobody reads it any more
    connection.ReplyError(EndedError());
    return bytes.size();
  }
  return taken;
}

void StdinSink::OnBodyEnd(Connection& connection) {
  // All of it is in the pipe: that the command ends meanwhile, having read it or not, is no error.
  if (eof_ && exec_ != nullptr && exec_->stdin_fd()) {
    if (exec_->spec().pty) {
      // If the terminal's queue is full its reader has not come to this point yet either way.
      (void)!::write(exec_->stdin_fd().get(), &kEndOfFile, 1);
    } else {
      exec_->CloseStdin();
    }
  }
  JsonWriter json;
  json.BeginObject().Field("accepted_bytes", accepted_).EndObject();
  connection.ReplyJson(200, json.text());
}

}  // namespace caisson::guest
