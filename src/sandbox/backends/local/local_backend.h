// The local backend: sandboxes made by caisson-launcher on this host.
//
// State of a sandbox, in <state_dir>/sandboxes (0700):
//   <id>.sock  where the guest listens
//   <id>.json  what finds it again, and the guest's token (0600); written with its cgroups before
//   it
//              is made (intent before effect), and with its first process afterwards; removed last
// so that Terminate and List work from these alone, whatever was lost.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/random.h"
#include "json/json.h"
#include "net/loop.h"
#include "sandbox/backend.h"
#include "sandbox/backends/local/host.h"
#include "sandbox/backends/local/launcher_client.h"

namespace caisson::sandbox::local {

struct LocalOptions {
  std::string state_dir;         // absolute, at most 56 bytes (unix sockets lie below it)
  std::string launcher_program;  // caisson-launcher
  LauncherClient::Mode mode = LauncherClient::Mode::kKeep;
};

// Belongs to one loop. Stop() before it is destroyed.
class LocalBackend final : public Backend {
 public:
  // Probes the host and starts the launcher. kDataDirUnusable, kHostUnsupported.
  static Result<std::unique_ptr<LocalBackend>> Start(net::Loop& loop, Random& random,
                                                     LocalOptions options);

  std::string_view name() const override { return "local"; }
  const Declaration& declaration() const override { return declaration_; }
  Result<void> Check(const SandboxSpec& spec) const override;
  Task<Result<Acquired>> Acquire(InstanceRef ref, SandboxSpec spec, Until until) override;
  Task<Result<Acquired>> Attach(InstanceRef ref, Until until) override;
  Task<Result<Usage>> MeasureUsage(InstanceRef ref, Until until) override;
  Task<Result<void>> Suspend(InstanceRef ref, Until until) override;
  Task<Result<void>> Resume(InstanceRef ref, Until until) override;
  Task<Result<Termination>> Terminate(InstanceRef ref, Until until) override;
  Task<Result<std::vector<InstanceRef>>> List(Until until) override;

  // kEphemeral: every sandbox is gone when it yields. Without sandboxes, so is state_dir.
  Task<Result<void>> Stop(Until until);

  // Whether sandboxes need a block of host uids of their own (InstanceRef::uid_base).
  bool needs_uids() const { return facts_.root; }

 private:
  struct Instance {
    ProcessRef process;
    std::string boot_id;
    std::vector<std::string> cgroups;
    std::string token;  // in the file only, never in the ledger
  };
  LocalBackend(net::Loop& loop, Random& random, LocalOptions options, HostFacts facts);
  Result<void> Prepare();
  std::string SocketOf(const SandboxId& id) const;
  std::string FileOf(const SandboxId& id) const;
  static json::object ToJson(const Instance& instance);
  static Result<Instance> ParseInstance(std::string_view text);
  // From the file, else from the ledger; kSandboxLost when neither knows it.
  Result<Instance> ReadInstance(const InstanceRef& ref) const;
  Result<void> WriteInstance(const SandboxId& id, const Instance& instance) const;
  Result<void> RemoveFiles(const SandboxId& id) const;
  Acquired Reach(const SandboxId& id, const Instance& instance) const;

  net::Loop& loop_;
  Random& random_;
  LocalOptions options_;
  HostFacts facts_;
  Declaration declaration_;
  std::string boot_id_;
  std::string outer_filter_;
  std::string inner_filter_;
  UniqueFd guest_program_;
  std::unique_ptr<LauncherClient> launcher_;
};

// What `caisson doctor` prints and the router asks.
Declaration Declare(const HostFacts& facts);

}  // namespace caisson::sandbox::local
