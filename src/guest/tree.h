// The process tree of one exec, and the two ways to hold on to it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/unique_fd.h"
#include "guest/loop.h"
#include "guest/supervisor.h"

namespace caisson::guest {

class Tree {
 public:
  virtual ~Tree() = default;
  // Begins to kill every process of the tree; may be repeated.
  virtual void Kill() = 0;
  // No process is left. Cheap; polled.
  virtual bool Gone() = 0;
  // `leader` is valid (not yet waited for) or -1.
  virtual void SignalLeader(pid_t leader, int signal) = 0;
  virtual void SignalAll(int signal) = 0;
};

// A cgroup-v2 directory for each exec below one that the guest was given.
class CgroupTree : public Tree {
 public:
  // Whether `root` can be used at all; the error says what it lacks.
  static Result<void> Check(int root);
  static Result<std::unique_ptr<CgroupTree>> Make(int root, const std::string& name);
  ~CgroupTree() override;  // removes the directory if it is empty by then

  int directory() const { return directory_.get(); }
  int64_t Living() const;
  void Kill() override;
  bool Gone() override;
  void SignalLeader(pid_t leader, int signal) override;
  void SignalAll(int signal) override;

 private:
  CgroupTree(int root, std::string name, UniqueFd directory)
      : root_(root), name_(std::move(name)), directory_(std::move(directory)) {}

  const int root_;
  const std::string name_;
  UniqueFd directory_;
};

// A supervisor process for each exec.
class SupervisedTree : public Tree {
 public:
  // `report` is called with each message; and, if the process dies before kGone, once with `lost`.
  using Report = std::function<void(const SupervisorReport& report, bool lost)>;
  // `peer` receives the supervisor's end of the socket.
  static Result<std::unique_ptr<SupervisedTree>> Make(Loop& loop, UniqueFd& peer, Report report);
  ~SupervisedTree() override;  // what is left of the tree is killed

  void Kill() override;
  bool Gone() override { return gone_; }
  void SignalLeader(pid_t leader, int signal) override;
  void SignalAll(int signal) override;

 private:
  SupervisedTree(Loop& loop, UniqueFd socket, Report report)
      : loop_(loop), socket_(std::move(socket)), report_(std::move(report)) {}
  void ReadReports();
  void Order(SupervisorOrder::Kind kind, int signal);

  Loop& loop_;
  UniqueFd socket_;
  Report report_;
  bool gone_ = false;
};

}  // namespace caisson::guest
