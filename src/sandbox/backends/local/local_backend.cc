#include "sandbox/backends/local/local_backend.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/syscall.h"
#include "guest/protocol.h"
#include "json/reader.h"
#include "net/dialer.h"
#include "sandbox/backends/local/plan_builder.h"
#include "sandbox/backends/local/usage.h"
#include "sandbox/embedded_guest.h"
#include "sandbox/seccomp_policy.h"

namespace caisson::sandbox::local {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kMaxSmallFile = 64 * 1024;
constexpr std::string_view kFileEnding = ".json";
constexpr std::string_view kBeside = ".new";

Result<void> MakeDirectory(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) == 0) return {};
  if (errno != EEXIST) return Fail(ErrnoError(errno, "make the directory " + path));
  // It may lie where others can make entries too.
  struct stat info{};
  bool own = ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
             info.st_uid == ::geteuid() && (info.st_mode & 0777) == mode;
  if (own) return {};
  return Fail(ErrorCode::kDataDirUnusable,
              fmt::format("{} is not a directory of this user with mode {:o}; remove it, or "
                          "choose another --runtime-dir",
                          path, mode));
}

// Written beside and renamed: a reader sees the old or the new content.
Result<void> ReplaceFile(const std::string& path, std::string_view content) {
  std::string beside = path + std::string(kBeside);
  {
    CAISSON_ASSIGN(UniqueFd fd, OpenFile(beside, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    CAISSON_TRY(WriteAll(fd.get(), content));
  }
  if (::rename(beside.c_str(), path.c_str()) != 0)
    return Fail(ErrnoError(errno, "rename " + beside));
  return {};
}

std::string GuestConfig(const SandboxSpec& spec, const CommandUser& user) {
  json::object env;
  for (const auto& [name, value] : spec.env) env[name] = value;
  json::array sets;
  for (size_t i = 0; i < spec.read_only_sets.size(); i++) {
    sets.push_back({{"path", spec.read_only_sets[i]}, {"store", "/" + SetStore(i)}});
  }
  return json::Serialize(json::object{{"user",
                                       {{"uid", user.inside},
                                        {"gid", user.inside},
                                        {"name", "user"},
                                        {"home", spec.home_dir},
                                        {"shell", "/bin/sh"}}},
                                      {"work_dir", spec.work_dir},
                                      {"env", std::move(env)},
                                      {"transfer", TransferToJson(spec.transfer)},
                                      {"sets", std::move(sets)}});
}

}  // namespace

Declaration Declare(const HostFacts& facts) {
  Declaration declaration;
  declaration.backend = "local";
  declaration.survives_host = false;
  declaration.isolation = IsolationOf(facts);
  declaration.usable = declaration.isolation != Isolation::kNone;
  const CgroupFacts& cgroups = facts.cgroups;
  declaration.resource_limits =
      cgroups.memory.available && cgroups.cpu.available && cgroups.pids.available;
  declaration.disk_limit = declaration.usable;
  declaration.uid_separation = facts.root;
  declaration.seccomp = facts.seccomp.available;
  declaration.landlock = facts.landlock.available;
  declaration.read_only_sets = facts.root;
  declaration.networks = {NetworkMode::kClosed};
  constexpr guest::BatchLimits kCeiling = guest::kBatchCeiling;
  declaration.transfer_ceiling = {kCeiling.max_files, kCeiling.max_file_bytes,
                                  kCeiling.max_total_bytes};
  auto add = [&](std::string name, bool holds, std::string detail) {
    declaration.facts.push_back({std::move(name), holds, std::move(detail)});
  };
  auto add_ability = [&](const char* name, const Ability& ability, const std::string& how) {
    add(name, ability.available, ability.available ? how : ability.reason);
  };
  add_ability("namespaces", facts.namespaces, "pid, mount, network, ipc, uts and user");
  add("uid_separation", facts.root,
      facts.root ? "65,536 host uids a sandbox, guest and commands apart" : facts.root_reason);
  add("read_only_sets", facts.root,
      facts.root ? "files of the guest's user" : "guest and commands are one user");
  add_ability("memory_limit", cgroups.memory, "cgroup");
  add_ability("cpu_limit", cgroups.cpu, "cgroup");
  add_ability("pids_limit", cgroups.pids, "cgroup");
  add_ability("command_trees", cgroups.tree, "one cgroup-v2 directory a command");
  add_ability("seccomp", facts.seccomp, "two filters: guest and commands");
  add_ability("landlock", facts.landlock, fmt::format("ABI {}", facts.landlock_abi));
  add("disk_limit", declaration.usable, "one sized tmpfs for all writable paths");
  add("network_closed", declaration.usable, "an empty network namespace");
  return declaration;
}

LocalBackend::LocalBackend(net::Loop& loop, Random& random, LocalOptions options, HostFacts facts)
    : loop_(loop),
      random_(random),
      options_(std::move(options)),
      facts_(std::move(facts)),
      declaration_(Declare(facts_)) {}

Result<std::unique_ptr<LocalBackend>> LocalBackend::Start(net::Loop& loop, Random& random,
                                                          LocalOptions options) {
  HostFacts facts = ProbeHost(options.launcher_program);
  std::unique_ptr<LocalBackend> backend(
      new LocalBackend(loop, random, std::move(options), std::move(facts)));
  CAISSON_TRY(backend->Prepare());
  return backend;
}

Result<void> LocalBackend::Prepare() {
  if (options_.state_dir.size() > 56) {
    return Fail(ErrorCode::kDataDirUnusable,
                fmt::format("the path {} is longer than 56 bytes, too long for the sockets of "
                            "sandboxes; choose a shorter --runtime-dir",
                            options_.state_dir));
  }
  CAISSON_TRY(MakeDirectory(options_.state_dir, 0700));
  CAISSON_TRY(MakeDirectory(options_.state_dir + "/stage", 0700));
  CAISSON_TRY(MakeDirectory(options_.state_dir + "/sandboxes", 0700));
  CAISSON_ASSIGN(boot_id_, ReadWholeFile("/proc/sys/kernel/random/boot_id"));
  while (boot_id_.ends_with('\n')) boot_id_.pop_back();
  CAISSON_ASSIGN(outer_filter_, CompileFilter(FilterKind::kOuter));
  CAISSON_ASSIGN(inner_filter_, CompileFilter(FilterKind::kInner));
  // Sealed: no sandbox can change what the next one runs, through /proc/1/exe for example.
  CAISSON_ASSIGN(guest_program_, MakeSealedMemFd("caisson-guest", EmbeddedGuest()));
  CAISSON_TRY(PrepareCgroups(facts_.cgroups.preparation));
  CAISSON_ASSIGN(launcher_, LauncherClient::Start(loop_, options_.launcher_program,
                                                  options_.state_dir, options_.mode));
  return {};
}

Result<void> LocalBackend::Check(const SandboxSpec& spec) const {
  CAISSON_TRY(ValidateSpec(spec));
  return CheckHost(facts_, spec, false);
}

std::string LocalBackend::SocketOf(const SandboxId& id) const {
  return fmt::format("{}/sandboxes/{}.sock", options_.state_dir, id.text());
}
std::string LocalBackend::FileOf(const SandboxId& id) const {
  return fmt::format("{}/sandboxes/{}{}", options_.state_dir, id.text(), kFileEnding);
}

json::object LocalBackend::ToJson(const Instance& instance) {
  json::array cgroups(instance.cgroups.begin(), instance.cgroups.end());
  return json::object{{"pid", instance.process.pid},
                      {"start_time", instance.process.start_time},
                      {"boot_id", instance.boot_id},
                      {"cgroups", std::move(cgroups)}};
}

Result<LocalBackend::Instance> LocalBackend::ParseInstance(std::string_view text) {
  CAISSON_ASSIGN(json::object object, json::ParseObject(text));
  json::ObjectReader reader(object);
  Instance instance;
  instance.process.pid = static_cast<int32_t>(reader.Int("pid", 0, INT32_MAX).value_or(0));
  instance.process.start_time =
      static_cast<uint64_t>(reader.Int("start_time", 0, INT64_MAX).value_or(0));
  instance.boot_id = reader.RequiredString("boot_id");
  instance.cgroups = reader.Strings("cgroups");
  instance.token = reader.String("token").value_or("");
  CAISSON_TRY(reader.Finish(json::ObjectReader::Unknown::kIgnore));
  return instance;
}

Result<LocalBackend::Instance> LocalBackend::ReadInstance(const InstanceRef& ref) const {
  auto text = ReadWholeFile(FileOf(ref.id), kMaxSmallFile);
  if (text) return ParseInstance(*text);
  if (text.error().code != ErrorCode::kFileNotFound) return Fail(text.error());
  if (!ref.instance.empty()) return ParseInstance(ref.instance);
  return Fail(ErrorCode::kSandboxLost, "nothing was made for this sandbox");
}

Result<void> LocalBackend::WriteInstance(const SandboxId& id, const Instance& instance) const {
  json::object object = ToJson(instance);
  object["token"] = instance.token;
  return ReplaceFile(FileOf(id), json::Serialize(object));
}

Result<void> LocalBackend::RemoveFiles(const SandboxId& id) const {
  std::string file = FileOf(id);
  for (const std::string& path : {SocketOf(id), file + std::string(kBeside), file}) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return Fail(ErrnoError(errno, "remove " + path));
    }
  }
  return {};
}

Acquired LocalBackend::Reach(const SandboxId& id, const Instance& instance) const {
  Acquired acquired;
  acquired.instance = json::Serialize(ToJson(instance));
  acquired.dialer = std::make_unique<net::UnixDialer>(loop_, SocketOf(id));
  acquired.token = instance.token;
  return acquired;
}

Task<Result<Acquired>> LocalBackend::Acquire(InstanceRef ref, SandboxSpec spec, Until until) {
  CAISSON_CO_TRY(Check(spec));
  if (until.stop.stop_requested())
    co_return Fail(ErrorCode::kCancelled, "the request was cancelled");
  SandboxPaths paths{ref.id.text(), options_.state_dir + "/stage", "", ref.uid_base};
  CAISSON_CO_ASSIGN(launcher::LaunchPlan plan, BuildLaunchPlan(facts_, spec, paths, outer_filter_));
  if (::access(FileOf(ref.id).c_str(), F_OK) == 0) {  // the same request again
    co_return co_await Attach(std::move(ref), std::move(until));
  }
  plan.die_with_launcher = options_.mode == LauncherClient::Mode::kEphemeral;

  Instance instance;
  instance.boot_id = boot_id_;
  for (const auto& cgroup : plan.cgroups) instance.cgroups.push_back(cgroup.path);
  instance.token = random_.Hex(kTokenBytes);
  CAISSON_CO_TRY(WriteInstance(ref.id, instance));
  CAISSON_CO_ASSIGN(UniqueFd listen, net::ListenUnixSocket(SocketOf(ref.id)));
  CAISSON_CO_ASSIGN(UniqueFd token_file, MakeSealedMemFd("token", instance.token));
  CAISSON_CO_ASSIGN(UniqueFd config,
                    MakeSealedMemFd("config", GuestConfig(spec, CommandUserOf(facts_, paths))));
  CAISSON_CO_ASSIGN(UniqueFd filter, MakeSealedMemFd("filter", inner_filter_));

  LauncherClient::CreateInput input{guest_program_.get(), listen.get(), token_file.get(),
                                    config.get(), filter.get()};
  CAISSON_CO_ASSIGN(LauncherClient::Created created, co_await launcher_->Create(plan, input));
  instance.process = created.process;
  CAISSON_CO_TRY(WriteInstance(ref.id, instance));
  Acquired acquired = Reach(ref.id, instance);
  Micros before{};  // the launcher counts from its start
  for (const auto& [step, at] : created.steps) {
    acquired.steps.push_back({std::string(launcher::NameOf(step)), at - before});
    before = at;
  }
  co_return acquired;
}

Task<Result<Acquired>> LocalBackend::Attach(InstanceRef ref, Until until) {
  auto instance = ReadInstance(ref);
  if (!instance) co_return Fail(instance.error());
  // After a reboot nothing lives, and the pid may be somebody else's.
  if (instance->boot_id != boot_id_ || instance->process.pid == 0) {
    co_return Fail(ErrorCode::kSandboxLost, "the sandbox did not survive");
  }
  CAISSON_CO_TRY(co_await launcher_->Find(instance->process, until));
  if (instance->token.empty()) co_return Fail(ErrorCode::kSandboxLost, "its token is gone");
  co_return Reach(ref.id, *instance);
}

Task<Result<Usage>> LocalBackend::MeasureUsage(InstanceRef ref, Until until) {
  CAISSON_CO_ASSIGN(Instance instance, ReadInstance(ref));
  // While this is held, the pid is nobody else's.
  CAISSON_CO_ASSIGN(UniqueFd alive, co_await launcher_->Find(instance.process, std::move(until)));
  co_return local::MeasureUsage(instance.cgroups,
                                fmt::format("/proc/{}/root", instance.process.pid));
}

Task<Result<void>> LocalBackend::Suspend(InstanceRef, Until) {
  co_return Fail(ErrorCode::kNotSupported, "the local backend cannot suspend sandboxes yet");
}
Task<Result<void>> LocalBackend::Resume(InstanceRef, Until) {
  co_return Fail(ErrorCode::kNotSupported, "the local backend cannot suspend sandboxes yet");
}

Task<Result<Termination>> LocalBackend::Terminate(InstanceRef ref, Until until) {
  Termination termination;
  auto instance = ReadInstance(ref);
  if (!instance && instance.error().code != ErrorCode::kSandboxLost) {
    co_return Fail(instance.error());
  }
  bool gone = true;
  if (instance && instance->boot_id == boot_id_) {
    CAISSON_CO_ASSIGN(gone,
                      co_await launcher_->Terminate(instance->process, instance->cgroups, until));
  }
  // Mounts and network are namespaces of the first process: they end with the last process in them.
  termination.instance_gone = gone;
  termination.mounts_gone = gone;
  termination.network_gone = gone;
  if (!gone) {
    termination.pending_reason = "a process or cgroup of the sandbox is still there";
    co_return termination;
  }
  CAISSON_CO_TRY(RemoveFiles(ref.id));
  termination.workspace_gone = true;
  co_return termination;
}

Task<Result<std::vector<InstanceRef>>> LocalBackend::List(Until) {
  std::vector<InstanceRef> refs;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(options_.state_dir + "/sandboxes", error)) {
    if (entry.path().extension() != kFileEnding) continue;
    auto id = SandboxId::Parse(entry.path().stem().string());
    if (id) refs.push_back({std::move(*id), 0, 0, ""});
  }
  if (error)
    co_return Fail(ErrorCode::kIo, "the list of sandboxes cannot be read", error.message());
  co_return refs;
}

Task<Result<void>> LocalBackend::Stop(Until until) {
  auto stopped = co_await launcher_->Stop(std::move(until));
  // Where sandboxes live on, they stay.
  for (const char* part : {"/stage", "/sandboxes", ""}) {
    (void)::rmdir((options_.state_dir + part).c_str());
  }
  co_return stopped;
}

}  // namespace caisson::sandbox::local
