// The two bodies of an exec's calls: its output as records, and its stdin as raw bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "guest/connection.h"
#include "guest/exec.h"
#include "guest/protocol.h"
#include "guest/records.h"

namespace caisson::guest {

// One attached reader. It and its exec may go in either order.
class OutputReader : public BodySource {
 public:
  OutputReader(Server& server, Loop& loop, uint64_t connection_id, Exec& exec, uint64_t after);
  ~OutputReader() override;

  State Pull(std::string& out, size_t room) override;

  // Everything before this has been given to the stream.
  uint64_t position() const { return position_; }
  // There is something new.
  void Wake();
  // The exec is gone; the stream is cut.
  void Detach();

 private:
  void StartTimer();

  Server& server_;
  Loop& loop_;
  const uint64_t connection_id_;
  Exec* exec_;
  uint64_t position_;
  bool started_sent_ = false;
  bool keep_alive_due_ = false;
  int64_t last_record_ms_ = 0;
  Loop::TimerId timer_;
};

// A part of output that is kept in a file; the exec may go meanwhile.
class KeptSource : public BodySource {
 public:
  KeptSource(UniqueFd file, int64_t offset, int64_t size)
      : file_(std::move(file)), offset_(offset), left_(size) {}
  State Pull(std::string& out, size_t room) override;

 private:
  UniqueFd file_;
  int64_t offset_;
  int64_t left_;
};

// Writes a request's body into a command's stdin.
class StdinSink : public BodySink {
 public:
  StdinSink(Server& server, Loop& loop, uint64_t connection_id, Exec& exec, bool eof);
  ~StdinSink() override;

  size_t OnBody(Connection& connection, std::string_view bytes) override;
  void OnBodyEnd(Connection& connection) override;
  // The command has ended: bytes that wait, or come now, are refused.
  void ExecEnded();

 private:
  Server& server_;
  Loop& loop_;
  const uint64_t connection_id_;
  Exec* exec_;  // null once it ended
  const bool eof_;
  bool waiting_ = false;  // for room in the pipe
  int64_t accepted_ = 0;
};

}  // namespace caisson::guest
