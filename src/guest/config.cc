#include "guest/config.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/syscall.h"
#include "guest/json.h"
#include "guest/protocol.h"
#include "guest/text.h"

namespace caisson::guest {
namespace {

constexpr size_t kMaxConfigBytes = 1024 * 1024;
constexpr size_t kMaxTokenBytes = 4096;

Result<UniqueFd> TakeFd(std::string_view variable, bool required) {
  const char* name = variable.data();  // literals of protocol.h: they end with a NUL
  const char* text = ::getenv(name);
  if (text == nullptr) {
    if (!required) return UniqueFd();
    return Fail(ErrorCode::kInvalidConfig, std::string(variable) + " is not set");
  }
  auto number = ParseDecimal(text);
  ::unsetenv(name);
  if (!number || *number > 1 << 20 || ::fcntl(static_cast<int>(*number), F_GETFD) < 0) {
    return Fail(ErrorCode::kInvalidConfig, std::string(variable) + " is not an open descriptor");
  }
  UniqueFd fd(static_cast<int>(*number));
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  return fd;
}

// What the guest and its spawner have both.
Result<void> ReadShared(Config& config) {
  CAISSON_ASSIGN(UniqueFd settings, TakeFd(kEnvConfigFd, true));
  CAISSON_ASSIGN(config.filter, TakeFd(kEnvFilterFd, false));
  CAISSON_ASSIGN(std::string text, ReadFromStart(settings.get(), kMaxConfigBytes));
  return ParseConfig(text, config);
}

BatchLimits ReadCaps(Fields& transfer, std::string_view direction) {
  BatchLimits caps;
  const Json* json = transfer.Member(direction, Json::Type::kObject);
  if (json == nullptr) return caps;
  Fields fields(*json);
  caps.max_files = fields.IntOr("max_files", caps.max_files, 1, kBatchCeiling.max_files);
  caps.max_file_bytes =
      fields.IntOr("max_file_bytes", caps.max_file_bytes, 1, kBatchCeiling.max_file_bytes);
  caps.max_total_bytes =
      fields.IntOr("max_total_bytes", caps.max_total_bytes, 1, kBatchCeiling.max_total_bytes);
  if (fields.error()) transfer.Complain("`transfer`: " + fields.error()->message);
  return caps;
}

}  // namespace

Result<void> ParseConfig(std::string_view text, Config& config) {
  CAISSON_ASSIGN(Json json, Json::Parse(text));
  Fields top(json);
  const Json* user_json = top.Member("user", Json::Type::kObject);
  if (user_json == nullptr) {
    return Fail(ErrorCode::kInvalidConfig, "`user` is missing or not an object");
  }
  Fields user(*user_json);
  constexpr int64_t kMaxId = 0xFFFFFFFE;
  config.user.uid = static_cast<uid_t>(user.IntOr("uid", -1, 0, kMaxId));
  config.user.gid = static_cast<gid_t>(user.IntOr("gid", -1, 0, kMaxId));
  config.user.name = user.Required("name");
  config.user.home = user.Required("home");
  config.user.shell = user.BytesOr("shell", "/bin/sh");
  if (const Json* groups = user.Member("groups", Json::Type::kArray)) {
    for (const Json& group : groups->items()) {
      if (!group.is(Json::Type::kInt) || group.AsInt() < 0 || group.AsInt() > kMaxId) {
        user.Complain("`groups` must hold group ids");
        break;
      }
      config.user.groups.push_back(static_cast<gid_t>(group.AsInt()));
    }
  }
  if (!user.Has("uid") || !user.Has("gid")) user.Complain("`uid` or `gid` is missing");
  config.work_dir = top.Required("work_dir");
  if (!config.work_dir.starts_with('/')) top.Complain("`work_dir` must be absolute");
  if (const Json* env = top.Member("env", Json::Type::kObject)) {
    for (size_t i = 0; i < env->items().size(); i++) {
      if (!env->items()[i].is(Json::Type::kString)) top.Complain("`env` must hold strings");
      config.env[env->keys()[i]] = env->items()[i].AsString();
    }
  }
  if (const Json* caps = top.Member("transfer", Json::Type::kObject)) {
    Fields transfer(*caps);
    config.upload = ReadCaps(transfer, "in");
    config.download = ReadCaps(transfer, "out");
    if (transfer.error()) top.Complain(transfer.error()->message);
  }
  if (const Json* sets = top.Member("sets", Json::Type::kArray)) {
    if (sets->items().size() > kMaxSets) top.Complain("`sets` has more than 16 places");
    for (const Json& item : sets->items()) {
      Fields place(item);
      config.sets.push_back({place.Required("path"), place.Required("store")});
      if (place.error()) top.Complain("`sets`: " + place.error()->message);
    }
  }
  for (const auto& error : {user.error(), top.error()}) {
    if (error) return Fail(ErrorCode::kInvalidConfig, error->message);
  }
  return {};
}

Result<void> ReadConfig(Config& config) {
  CAISSON_ASSIGN(config.sync, TakeFd(kEnvSyncFd, false));
  CAISSON_ASSIGN(config.listen, TakeFd(kEnvListenFd, true));
  CAISSON_ASSIGN(UniqueFd token, TakeFd(kEnvTokenFd, true));
  CAISSON_ASSIGN(config.cgroup, TakeFd(kEnvCgroupFd, false));
  CAISSON_ASSIGN(config.mem_events, TakeFd(kEnvMemEventsFd, false));
  CAISSON_ASSIGN(config.spawner, TakeFd(kEnvSpawnerFd, false));
  CAISSON_ASSIGN(config.token, ReadFromStart(token.get(), kMaxTokenBytes));
  if (config.token.empty()) return Fail(ErrorCode::kInvalidConfig, "the token is empty");
  return ReadShared(config);
}

Result<void> ReadSpawnerConfig(Config& config) {
  CAISSON_ASSIGN(config.spawner, TakeFd(kEnvSpawnerFd, true));
  return ReadShared(config);
}

}  // namespace caisson::guest
