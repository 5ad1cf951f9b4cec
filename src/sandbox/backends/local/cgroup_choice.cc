// Which directories of which cgroup hierarchies sandboxes get.
#include <algorithm>
#include <charconv>
#include <optional>

#include "sandbox/backends/local/host.h"

namespace caisson::sandbox::local {
namespace {

// A leaf for the processes that were in the parent directory (the server, its launcher). Also the
// value for systemd's DelegateSubgroup=.
constexpr std::string_view kServerLeaf = "caisson-server";

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool Has(std::string_view list, char separator, std::string_view word) {
  return std::ranges::count(Split(list, separator), word) > 0;
}

// "\040" and the like in mountinfo.
std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); i++) {
    int value = 0;
    if (text[i] == '\\' && i + 3 < text.size() + 0 &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, value, 8).ec == std::errc{}) {
      plain += static_cast<char>(value);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  std::string root;  // which directory of the hierarchy is mounted
  std::string point;
  bool v2 = false;
  std::string options;  // of the hierarchy: its controllers
};

std::vector<Mount> CgroupMounts(std::string_view mountinfo) {
  std::vector<Mount> mounts;
  for (std::string_view line : Split(mountinfo, '\n')) {
    std::vector<std::string_view> fields = Split(line, ' ');
    auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    std::string_view type = dash[1];
    if (type != "cgroup" && type != "cgroup2") continue;
    mounts.push_back(
        {Unescape(fields[3]), Unescape(fields[4]), type == "cgroup2", std::string(dash[3])});
  }
  return mounts;
}

// The path of this process in the hierarchy of `controller`; "" is v2.
std::string OwnPath(std::string_view self_cgroup, std::string_view controller) {
  for (std::string_view line : Split(self_cgroup, '\n')) {
    size_t first = line.find(':');
    size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : Has(controllers, ',', controller)) {
      return std::string(line.substr(second + 1));
    }
  }
  return {};
}

// The directory of `path` under a mount that shows `mount.root`; nothing when it is not shown.
std::optional<std::string> Visible(const Mount& mount, const std::string& path) {
  if (path.empty() || path.starts_with("/..")) return std::nullopt;
  std::string_view rest = path;
  if (mount.root != "/") {
    if (!rest.starts_with(mount.root)) return std::nullopt;
    rest.remove_prefix(mount.root.size());
    if (!rest.empty() && rest[0] != '/') return std::nullopt;
  }
  return mount.point + (rest == "/" ? std::string() : std::string(rest));
}

class Chooser {
 public:
  Chooser(std::string_view mountinfo, std::string_view self_cgroup, const CgroupView& view,
          bool root)
      : mounts_(CgroupMounts(mountinfo)), self_(self_cgroup), view_(view), root_(root) {}

  CgroupFacts Choose() {
    ChooseV2();
    ChooseV1("memory", facts_.v2_memory, facts_.v1_memory, facts_.memory);
    ChooseV1("cpu", facts_.v2_cpu, facts_.v1_cpu, facts_.cpu);
    ChooseV1("pids", facts_.v2_pids, facts_.v1_pids, facts_.pids);
    if (!facts_.tree.available) {
      Ability ignored;
      ChooseV1("freezer", false, facts_.v1_freezer, ignored);
    }
    return std::move(facts_);
  }

 private:
  void ChooseV1(std::string_view controller, bool in_v2, std::string& parent, Ability& ability) {
    if (in_v2) {
      ability.available = true;
      return;
    }
    auto mount = std::ranges::find_if(
        mounts_, [&](const Mount& m) { return !m.v2 && Has(m.options, ',', controller); });
    std::string name(controller);
    if (mount == mounts_.end()) {
      ability.reason = facts_.v2_parent.empty() && !v2_reason_.empty()
                           ? v2_reason_
                           : "no cgroup hierarchy with the " + name + " controller is mounted";
      return;
    }
    for (const std::optional<std::string>& candidate :
         {Visible(*mount, OwnPath(self_, controller)), std::optional(mount->point)}) {
      if (candidate && view_.writable(*candidate)) {
        parent = *candidate;
        ability.available = true;
        return;
      }
    }
    ability.reason = "the cgroup hierarchy of " + name + " (" + mount->point + ") is not writable";
  }

  void ChooseV2() {
    auto mount = std::ranges::find_if(mounts_, &Mount::v2);
    if (mount == mounts_.end()) {
      facts_.tree.reason = "no cgroup v2 tree is mounted";
      return;
    }
    std::optional<std::string> own = Visible(*mount, OwnPath(self_, ""));
    std::string controllers = view_.read(own.value_or(mount->point) + "/cgroup.controllers");
    std::string wanted;
    for (std::string_view name : {"memory", "cpu", "pids"}) {
      if (Has(Line(controllers), ' ', name))
        wanted += (wanted.empty() ? "+" : " +") + std::string(name);
    }
    bool chosen = wanted.empty() ? ChooseWithoutControllers(*mount, own)
                                 : ChooseWithControllers(*mount, own, wanted);
    facts_.tree.available = chosen;
    if (!chosen) {
      v2_reason_ = "the cgroup v2 tree (" + mount->point + ") is not delegated to this user";
      facts_.tree.reason = v2_reason_;
      return;
    }
    facts_.v2_memory = Has(wanted, ' ', "+memory");
    facts_.v2_cpu = Has(wanted, ' ', "+cpu");
    facts_.v2_pids = Has(wanted, ' ', "+pids");
  }

  // Nothing to distribute: directories may hold processes and children alike.
  bool ChooseWithoutControllers(const Mount& mount, const std::optional<std::string>& own) {
    for (const std::optional<std::string>& candidate : {own, std::optional(mount.point)}) {
      if (!candidate || !view_.writable(*candidate)) continue;
      facts_.v2_parent = *candidate;
      return true;
    }
    return false;
  }

  bool ChooseWithControllers(const Mount& mount, const std::optional<std::string>& own,
                             const std::string& wanted) {
    CgroupPreparation& preparation = facts_.preparation;
    if (own && *own != mount.point) {
      // In the leaf already: put there by systemd, or by an earlier PrepareCgroups().
      size_t cut = own->rfind('/');
      std::string above = own->substr(0, cut);
      bool in_leaf = std::string_view(*own).substr(cut + 1) == kServerLeaf;
      if (in_leaf && Controls(above)) {
        facts_.v2_parent = above;
        Enable(above, wanted);
        return true;
      }
      // Root may write everywhere; a cgroup is its own to rearrange only when it was given away, or
      // when nobody else is in it.
      if (Controls(*own) && (!root_ || view_.delegated(*own) || Alone(*own))) {
        facts_.v2_parent = *own;
        preparation.make = {*own + "/" + std::string(kServerLeaf)};
        preparation.move_from = *own;
        preparation.move_to = preparation.make[0];
        Enable(*own, wanted);
        return true;
      }
    }
    if (!Controls(mount.point)) return false;
    facts_.v2_parent = mount.point + "/caisson";
    // The root of the whole tree may hold processes; the root of a container's part may not.
    bool real_root = view_.read(mount.point + "/cgroup.type").empty();
    if (!real_root && !Enabled(mount.point, wanted)) {
      preparation.make = {mount.point + "/" + std::string(kServerLeaf)};
      preparation.move_from = mount.point;
      preparation.move_to = preparation.make[0];
    }
    preparation.make.push_back(facts_.v2_parent);
    Enable(mount.point, wanted);
    Enable(facts_.v2_parent, wanted);
    return true;
  }

  static std::string_view Line(std::string_view text) {
    return text.substr(0, std::min(text.find('\n'), text.size()));
  }
  bool Controls(const std::string& dir) const {
    return view_.writable(dir) && view_.writable(dir + "/cgroup.procs") &&
           view_.writable(dir + "/cgroup.subtree_control");
  }
  bool Alone(const std::string& dir) const {
    return Split(view_.read(dir + "/cgroup.procs"), '\n').size() == 1;
  }
  bool Enabled(const std::string& dir, const std::string& wanted) const {
    std::string enabled = view_.read(dir + "/cgroup.subtree_control");
    return std::ranges::all_of(Split(wanted, ' '), [&](std::string_view name) {
      return Has(Line(enabled), ' ', name.substr(1));
    });
  }
  void Enable(const std::string& dir, const std::string& wanted) {
    facts_.preparation.writes.emplace_back(dir + "/cgroup.subtree_control", wanted);
  }

  std::vector<Mount> mounts_;
  std::string self_;
  const CgroupView& view_;
  bool root_;
  std::string v2_reason_;
  CgroupFacts facts_;
};

}  // namespace

CgroupFacts ChooseCgroups(std::string_view mountinfo, std::string_view self_cgroup,
                          const CgroupView& view, bool root) {
  return Chooser(mountinfo, self_cgroup, view, root).Choose();
}

}  // namespace caisson::sandbox::local
