// Whether this host can hold what a spec requires; the refusals of BuildLaunchPlan().
#include "sandbox/backends/local/plan_builder.h"

namespace caisson::sandbox::local {
namespace {

std::string Lack(std::string_view what, const std::string& reason) {
  return "this host cannot give " + std::string(what) + ": " + reason;
}

Result<void> CheckIsolation(const HostFacts& facts, Isolation floor) {
  if (!facts.namespaces.available) {
    return Fail(ErrorCode::kHostUnsupported, Lack("a local sandbox", facts.namespaces.reason));
  }
  if (floor > Isolation::kHardenedContainer) {
    return Fail(ErrorCode::kIsolationNotPermitted, "local sandboxes share the host's kernel; \"" +
                                                       std::string(NameOf(floor)) +
                                                       "\" is required");
  }
  if (floor <= IsolationOf(facts)) return {};
  const std::string& reason = !facts.root                ? facts.root_reason
                              : !facts.seccomp.available ? facts.seccomp.reason
                                                         : facts.landlock.reason;
  return Fail(ErrorCode::kHostUnsupported,
              Lack("isolation \"" + std::string(NameOf(floor)) + "\"", reason));
}

Result<void> CheckAll(const HostFacts& facts, const SandboxSpec& spec, bool host_workspace) {
  const Requirements& required = spec.requirements;
  if (spec.network != NetworkMode::kClosed) {
    return Fail(ErrorCode::kEgressNotEnforced, "local sandboxes do not enforce network mode \"" +
                                                   std::string(NameOf(spec.network)) + "\"");
  }
  CAISSON_TRY(CheckIsolation(facts, required.min_isolation));
  if (required.uid_separation && !facts.root) {
    return Fail(ErrorCode::kHostUnsupported,
                Lack("separate uids for guest and commands", facts.root_reason));
  }
  if (required.seccomp && !facts.seccomp.available) {
    return Fail(ErrorCode::kHostUnsupported, Lack("a system-call filter", facts.seccomp.reason));
  }
  if (required.landlock && !facts.landlock.available) {
    return Fail(ErrorCode::kHostUnsupported, Lack("Landlock", facts.landlock.reason));
  }
  if (required.resource_limits) {
    struct {
      std::string_view what;
      const Ability& ability;
    } limits[] = {{"a memory limit", facts.cgroups.memory},
                  {"a cpu limit", facts.cgroups.cpu},
                  {"a limit on processes", facts.cgroups.pids}};
    for (const auto& limit : limits) {
      if (limit.ability.available) continue;
      return Fail(ErrorCode::kLimitNotEnforced, Lack(limit.what, limit.ability.reason));
    }
  }
  if (required.disk_limit && host_workspace) {
    return Fail(ErrorCode::kLimitNotEnforced,
                "the size of a workspace directory is not limited by the kernel; use an ephemeral "
                "workspace or a spec without requirements.disk_limit");
  }
  return {};
}

}  // namespace

Result<void> CheckHost(const HostFacts& facts, const SandboxSpec& spec, bool host_workspace) {
  Result<void> checked = CheckAll(facts, spec, host_workspace);
  if (checked) return checked;
  SandboxSpec weaker = spec;
  weaker.requirements = BuiltInProfile("default-rootless").value().requirements;
  weaker.requirements.disk_limit = spec.requirements.disk_limit;
  if (CheckAll(facts, weaker, host_workspace)) {
    checked.error().message += "; the profile default-rootless would do";
  }
  return checked;
}

}  // namespace caisson::sandbox::local
