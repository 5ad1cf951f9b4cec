#include "launcher/plan.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace caisson::launcher {
namespace {

static_assert(std::endian::native == std::endian::little);

// "CSNP", read as a little-endian number.
constexpr uint32_t kMagic = 0x504e5343;
// Of one list, and of one text. A plan of 1 MiB cannot hold more useful ones.
constexpr size_t kMaxCount = 4096;

// One description of the layout serves both directions: Fields() names the members in order, the
// archive writes or reads them. Numbers are little-endian in their own width, flags one byte, texts
// and lists a 32-bit count and their elements.
class Writer {
 public:
  void operator()(const std::string& text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes.append(text);
  }
  template <typename T>
  void operator()(const std::vector<T>& list);
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    Number(value);
  }
  template <typename T>
    requires std::is_class_v<T>
  void operator()(const T& record);

  std::string bytes;

 private:
  template <typename T>
  void Number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  void operator()(std::string& text) {
    uint32_t size = 0;
    Number(size);
    if (size > rest_.size()) ok_ = false;
    if (!ok_) return;
    text.assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
  }
  template <typename T>
  void operator()(std::vector<T>& list);
  void operator()(bool& flag) {
    uint8_t value = 0;
    Number(value);
    if (value > 1) ok_ = false;
    flag = value == 1;
  }
  void operator()(MountStep::Op& op) { Enum(op, MountStep::Op::kReadOnly); }
  void operator()(CgroupDir::Role& role) { Enum(role, CgroupDir::Role::kGuest); }
  template <typename T>
    requires std::is_integral_v<T>
  void operator()(T& value) {
    Number(value);
  }
  template <typename T>
    requires std::is_class_v<T>
  void operator()(T& record);

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

 private:
  template <typename T>
  void Number(T& value) {
    if (rest_.size() < sizeof value) ok_ = false;
    if (!ok_) return;
    std::copy_n(rest_.begin(), sizeof value, reinterpret_cast<char*>(&value));
    rest_.remove_prefix(sizeof value);
  }
  template <typename T>
  void Enum(T& value, T last) {
    uint8_t number = 0;
    Number(number);
    if (number > static_cast<uint8_t>(last)) {
      ok_ = false;
    } else {
      value = static_cast<T>(number);
    }
  }

  std::string_view rest_;
  bool ok_ = true;
};

// The same text for const and mutable records.
template <typename T, typename Record>
concept Is = std::is_same_v<std::remove_const_t<T>, Record>;

template <typename A, Is<IdMap> T>
void Fields(A& a, T& r) {
  a(r.inside), a(r.outside), a(r.count);
}
template <typename A, Is<MountStep> T>
void Fields(A& a, T& r) {
  a(r.op), a(r.target), a(r.source), a(r.content), a(r.size_bytes), a(r.inodes), a(r.mode);
  a(r.uid), a(r.gid), a(r.read_only), a(r.no_exec), a(r.allow_devices), a(r.recursive);
  a(r.optional);
}
template <typename A, Is<CgroupDir::Write> T>
void Fields(A& a, T& r) {
  a(r.file), a(r.value), a(r.required);
}
template <typename A, Is<CgroupDir> T>
void Fields(A& a, T& r) {
  a(r.path), a(r.role), a(r.writes), a(r.delegate), a(r.memory_events);
}
template <typename A, Is<LandlockRule> T>
void Fields(A& a, T& r) {
  a(r.path), a(r.access);
}
template <typename A, Is<ResourceLimit> T>
void Fields(A& a, T& r) {
  a(r.resource), a(r.soft), a(r.hard);
}
template <typename A, Is<LaunchPlan> T>
void Fields(A& a, T& r) {
  a(r.name), a(r.hostname), a(r.stage_dir), a(r.namespaces), a(r.user_namespace_first);
  a(r.uid_map), a(r.gid_map), a(r.guest_uid), a(r.guest_gid), a(r.die_with_launcher);
  a(r.cgroups), a(r.root_dir), a(r.root_tmpfs_bytes), a(r.mounts), a(r.limits);
  a(r.keep_capabilities), a(r.landlock_fs), a(r.landlock_net), a(r.landlock_scoped);
  a(r.landlock_rules), a(r.outer_filter), a(r.environment);
}

template <typename T>
void Writer::operator()(const std::vector<T>& list) {
  Number(static_cast<uint32_t>(list.size()));
  for (const T& element : list) (*this)(element);
}
template <typename T>
  requires std::is_class_v<T>
void Writer::operator()(const T& record) {
  Fields(*this, record);
}
template <typename T>
void Reader::operator()(std::vector<T>& list) {
  uint32_t count = 0;
  Number(count);
  if (count > kMaxCount || count > rest_.size()) ok_ = false;
  if (ok_) list.reserve(count);
  for (uint32_t i = 0; i < count && ok_; i++) (*this)(list.emplace_back());
}
template <typename T>
  requires std::is_class_v<T>
void Reader::operator()(T& record) {
  Fields(*this, record);
}

// Texts that become C strings must not hold a NUL: the kernel would see less than was checked.
bool HoldsNul(const LaunchPlan& plan) {
  auto nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (nul(plan.name) || nul(plan.hostname) || nul(plan.stage_dir) || nul(plan.root_dir))
    return true;
  for (const MountStep& step : plan.mounts) {
    if (nul(step.target) || nul(step.source)) return true;
  }
  for (const CgroupDir& dir : plan.cgroups) {
    if (nul(dir.path) || nul(dir.memory_events)) return true;
    for (const CgroupDir::Write& write : dir.writes) {
      if (nul(write.file)) return true;
    }
  }
  for (const LandlockRule& rule : plan.landlock_rules) {
    if (nul(rule.path)) return true;
  }
  for (const std::string& variable : plan.environment) {
    if (nul(variable)) return true;
  }
  return false;
}

}  // namespace

std::string EncodePlan(const LaunchPlan& plan) {
  Writer writer;
  writer(kMagic);
  writer(kPlanVersion);
  writer(plan);
  return std::move(writer.bytes);
}

Result<LaunchPlan> DecodePlan(std::string_view bytes) {
  if (bytes.size() > kMaxPlanBytes) {
    return Fail(ErrorCode::kInvalidArgument, "the launch plan is larger than its limit");
  }
  Reader reader(bytes);
  uint32_t magic = 0;
  uint32_t version = 0;
  reader(magic);
  reader(version);
  if (!reader.ok() || magic != kMagic) {
    return Fail(ErrorCode::kInvalidArgument, "these bytes are not a launch plan");
  }
  if (version != kPlanVersion) {
    return Fail(ErrorCode::kInvalidArgument, "the launch plan is of another version");
  }
  LaunchPlan plan;
  reader(plan);
  if (!reader.ok() || !reader.at_end()) {
    return Fail(ErrorCode::kInvalidArgument, "the launch plan is damaged");
  }
  if (HoldsNul(plan)) return Fail(ErrorCode::kInvalidArgument, "a text of the plan holds NUL");
  return plan;
}

}  // namespace caisson::launcher
