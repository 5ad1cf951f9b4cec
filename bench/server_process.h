// A `caisson serve` of our own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/subprocess.h"
#include "groups.h"

namespace caisson::bench {

// Made at the start, gone with its content at the end.
class TemporaryDirectory {
 public:
  static Result<std::unique_ptr<TemporaryDirectory>> Make(const Bench& bench);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Serves on a free port until dropped; its sandboxes end with it.
class ServerProcess {
 public:
  // Returns when it has printed that it serves. In `data_dir`, or a directory of its own.
  static Result<std::unique_ptr<ServerProcess>> Start(const Bench& bench,
                                                      std::string data_dir = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  pid_t pid() const { return child_.pid(); }
  uint16_t port() const { return port_; }
  const std::string& data_dir() const { return data_dir_; }

 private:
  ServerProcess(const Clock& clock, ChildProcess child) : clock_(clock), child_(std::move(child)) {}
  Result<void> ReadPort();

  const Clock& clock_;
  std::unique_ptr<TemporaryDirectory> own_dir_;
  std::string data_dir_;
  ChildProcess child_;
  UniqueFd out_;
  uint16_t port_ = 0;
};

}  // namespace caisson::bench
