// The backend interface: who makes the places that sandboxes live in.
//
// A backend owns a life cycle and a way to reach the guest, and nothing else: files, commands and
// search are the guest's (docs/guest-protocol.md). The same interface is spoken over a socket by
// external drivers later; so everything in it is plain data, and every call is
// - idempotent: the row's id names the instance; asking twice makes one;
// - cancellable: by deadline or stop token, at any time, leaving something that Terminate removes;
// - honest: what is not confirmed is said to be pending, what is not enforced is not declared.
//
// Order of life: a ledger row exists (requested), Acquire, use, Terminate until confirmed, receipt.
// After a restart of the server: Attach for each live row, List to find what has no row.
// Errors: host and provider texts go into Error::cause, never into Error::message.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/task.h"
#include "base/until.h"
#include "net/stream.h"
#include "sandbox/spec.h"

namespace caisson::sandbox {

// What a backend really enforces on this host, found out by trying, with the reason where it does
// not. `caisson doctor` prints it.
struct Declaration {
  struct Fact {
    std::string name;  // "cgroup_limits", "landlock", "uid_separation", …
    bool holds = false;
    std::string detail;  // how, or why not and what would help
  };
  std::string backend;
  Isolation isolation = Isolation::kNone;
  bool usable = false;  // false: nothing can be made on this host; the facts say why
  bool resource_limits = false;
  bool disk_limit = false;
  bool uid_separation = false;
  bool seccomp = false;
  bool landlock = false;
  std::vector<NetworkMode> networks;
  bool read_only_sets = false;  // commands cannot change them: the guest is another user
  bool suspend = false;
  bool snapshot = false;
  // Its instances outlive a loss of power of this host. Where they do not, what the ledger says of
  // one need not either, once the caller knows its id: such a loss makes it `lost` in any case.
  bool survives_host = true;
  TransferCaps transfer_ceiling;
  std::vector<Fact> facts;
};

// Names one instance to its backend; made from the ledger's row.
struct InstanceRef {
  SandboxId id;
  uint64_t generation = 0;
  uint32_t uid_base = 0;  // of the row; 0 when none was allocated
  std::string instance;   // JSON of the backend, as Acquire gave it; empty before
};

// A reachable sandbox. Dropping the dialer does not end the sandbox.
struct Acquired {
  std::string instance;  // JSON, kept in the row: whatever finds the instance again
  std::unique_ptr<net::Dialer> dialer;
  std::string token;  // of the guest
  // What each step of making it took, in order, for metrics and the lifecycle event.
  struct Step {
    std::string name;
    Micros took;
  };
  std::vector<Step> steps;
};

// What a sandbox uses now. Nothing where this host does not tell.
struct Usage {
  std::optional<Micros> cpu;                  // of its commands, since it was made
  std::optional<uint64_t> memory_bytes;       // of its commands, with what they have written
  std::optional<uint64_t> memory_peak_bytes;  // at most so far
  std::optional<uint64_t> pids;               // of its commands
  std::optional<uint64_t> disk_bytes;         // of all writable paths together
};

// What is gone and what is not. All confirmed means: nothing of it is left on the host.
struct Termination {
  bool instance_gone = false;  // processes
  bool mounts_gone = false;
  bool network_gone = false;
  bool workspace_gone = false;  // of an ephemeral one; true where there is none
  std::string pending_reason;   // what is not confirmed, for the log
  bool complete() const { return instance_gone && mounts_gone && network_gone && workspace_gone; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  // Cheap and current; computed at start.
  virtual const Declaration& declaration() const = 0;
  // The backend's own checks of a spec, without acting: named refusals, see error_codes.def.
  virtual Result<void> Check(const SandboxSpec& spec) const = 0;

  // Makes the instance and waits until its guest says ready.
  virtual Task<Result<Acquired>> Acquire(InstanceRef ref, SandboxSpec spec, Until until) = 0;
  // Finds a living instance again. kSandboxLost when there is none (confirmed).
  virtual Task<Result<Acquired>> Attach(InstanceRef ref, Until until) = 0;
  // kSandboxLost when there is no living instance.
  virtual Task<Result<Usage>> MeasureUsage(InstanceRef ref, Until until) = 0;
  // kNotSupported where the declaration says so.
  virtual Task<Result<void>> Suspend(InstanceRef ref, Until until) = 0;
  virtual Task<Result<void>> Resume(InstanceRef ref, Until until) = 0;
  // Removes everything of it, whatever state it is in. An incomplete termination is no error: ask
  // again. An error means that nothing could be tried.
  virtual Task<Result<Termination>> Terminate(InstanceRef ref, Until until) = 0;
  // Every instance that carries this server's label, with or without a row.
  virtual Task<Result<std::vector<InstanceRef>>> List(Until until) = 0;
};

}  // namespace caisson::sandbox
