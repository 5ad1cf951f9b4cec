#include "sandbox/spec_json.h"

#include <limits>

namespace caisson::sandbox {
namespace {

using json::ObjectReader;

constexpr int64_t kLongestMs = 366ll * 24 * 3'600'000;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// Ranges are ValidateSpec's business: it knows all fields, whoever made the spec.
template <typename T>
void ReadInt(ObjectReader& reader, std::string_view name, int64_t most, T& into) {
  if (auto number = reader.Int(name, 0, most)) into = static_cast<T>(*number);
}

void ReadMs(ObjectReader& reader, std::string_view name, std::chrono::milliseconds& into) {
  if (auto ms = reader.Int(name, 1'000, kLongestMs)) into = std::chrono::milliseconds(*ms);
}

Result<void> ReadResources(ObjectReader& reader, Resources& resources) {
  const json::object* object = reader.Object("resources");
  if (object == nullptr) return {};
  ObjectReader fields(*object, reader.PathOf("resources"));
  resources.cpus = fields.Number("cpus", 0, 1e6).value_or(resources.cpus);
  ReadInt(fields, "memory_bytes", kAny, resources.memory_bytes);
  ReadInt(fields, "pids", std::numeric_limits<uint32_t>::max(), resources.pids);
  ReadInt(fields, "disk_bytes", kAny, resources.disk_bytes);
  ReadInt(fields, "open_files", std::numeric_limits<uint32_t>::max(), resources.open_files);
  return fields.Finish(ObjectReader::Unknown::kRefuse);
}

Result<void> ReadCaps(ObjectReader& transfer, std::string_view direction, TransferCaps& caps) {
  const json::object* object = transfer.Object(direction);
  if (object == nullptr) return {};
  ObjectReader fields(*object, transfer.PathOf(direction));
  ReadInt(fields, "max_files", kAny, caps.max_files);
  ReadInt(fields, "max_file_bytes", kAny, caps.max_file_bytes);
  ReadInt(fields, "max_total_bytes", kAny, caps.max_total_bytes);
  return fields.Finish(ObjectReader::Unknown::kRefuse);
}

Result<void> ReadTransfer(ObjectReader& reader, Transfer& transfer) {
  const json::object* object = reader.Object("transfer");
  if (object == nullptr) return {};
  ObjectReader fields(*object, reader.PathOf("transfer"));
  CAISSON_TRY(ReadCaps(fields, "in", transfer.in));
  CAISSON_TRY(ReadCaps(fields, "out", transfer.out));
  return fields.Finish(ObjectReader::Unknown::kRefuse);
}

json::array Texts(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

}  // namespace

Result<SandboxSpec> ReadSpec(ObjectReader& reader) {
  CAISSON_ASSIGN(SandboxSpec spec, BuiltInProfile(reader.String("profile").value_or("default")));
  spec.work_dir = reader.String("work_dir").value_or(spec.work_dir);
  if (auto network = reader.String("network")) {
    CAISSON_ASSIGN(spec.network, ParseNetworkMode(*network));
  }
  // A caller may ask for more isolation than the profile has, never for less.
  if (auto isolation = reader.String("min_isolation")) {
    CAISSON_ASSIGN(Isolation asked, ParseIsolation(*isolation));
    spec.requirements.min_isolation = std::max(spec.requirements.min_isolation, asked);
  }
  ReadMs(reader, "ttl_ms", spec.lifetimes.ttl);
  ReadMs(reader, "idle_ms", spec.lifetimes.idle);
  ReadMs(reader, "max_exec_ms", spec.lifetimes.max_exec);
  CAISSON_TRY(ReadResources(reader, spec.resources));
  CAISSON_TRY(ReadTransfer(reader, spec.transfer));
  spec.writable_paths = reader.Strings("writable_paths");
  spec.read_only_sets = reader.Strings("read_only_sets");
  if (const json::object* env = reader.Object("env")) {
    for (const auto& [name, value] : *env) {
      if (!value.is_string()) reader.Wrong("env", "must hold strings only");
      if (value.is_string()) spec.env[std::string(name)] = value.get_string();
    }
  }
  return spec;
}

json::object SpecToJson(const SandboxSpec& spec) {
  json::object resources{{"cpus", spec.resources.cpus},
                         {"memory_bytes", spec.resources.memory_bytes},
                         {"pids", spec.resources.pids},
                         {"disk_bytes", spec.resources.disk_bytes},
                         {"open_files", spec.resources.open_files}};
  return {{"backend", spec.backend},
          {"profile", spec.profile},
          {"work_dir", spec.work_dir},
          {"network", NameOf(spec.network)},
          {"min_isolation", NameOf(spec.requirements.min_isolation)},
          {"ttl_ms", spec.lifetimes.ttl.count()},
          {"idle_ms", spec.lifetimes.idle.count()},
          {"max_exec_ms", spec.lifetimes.max_exec.count()},
          {"resources", std::move(resources)},
          {"transfer", TransferToJson(spec.transfer)},
          {"writable_paths", Texts(spec.writable_paths)},
          {"read_only_sets", Texts(spec.read_only_sets)}};
}

Result<SandboxSpec> SpecFromLedger(std::string_view text) {
  CAISSON_ASSIGN(json::object object, json::ParseObject(text));
  ObjectReader reader(object);
  CAISSON_ASSIGN(SandboxSpec spec, ReadSpec(reader));
  CAISSON_TRY(reader.Finish(ObjectReader::Unknown::kIgnore));
  return spec;
}

}  // namespace caisson::sandbox
