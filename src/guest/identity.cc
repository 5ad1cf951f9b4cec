#include "guest/identity.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "guest/text.h"

namespace caisson::guest {
namespace {

// setfsuid returns the former id and never an error: asking for an impossible id reads it.
uid_t CurrentFsUid() { return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))); }
gid_t CurrentFsGid() { return static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1))); }

// Whether any capability that overrides file permissions is in effect.
bool HasFilePower() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return true;
  constexpr unsigned kBits[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
                                CAP_FOWNER, CAP_FSETID,       CAP_MKNOD};
  for (unsigned bit : kBits) {
    if ((data[0].effective >> bit & 1) != 0) return true;
  }
  return false;
}

}  // namespace

bool Identity::Switches(const CommandUser& user) {
  return ::geteuid() != user.uid || HasFilePower();
}

Result<Identity> Identity::Establish(const CommandUser& user) {
  Identity identity;
  identity.uid_ = user.uid;
  identity.gid_ = user.gid;
  if (!Switches(user)) return identity;
  if (::geteuid() != 0) {
    return Fail(ErrorCode::kLaunchFailed, "the guest is uid " + Decimal(::geteuid()) +
                                              " and cannot act as uid " + Decimal(user.uid));
  }
  identity.switches_ = true;
  identity.separate_ = user.uid != 0;
  if (::setgroups(user.groups.size(), user.groups.data()) != 0) {
    return Fail(ErrnoError(errno, "setgroups"));
  }
  {
    Scope scope(identity);
    if (CurrentFsUid() != user.uid || CurrentFsGid() != user.gid ||
        (identity.separate_ && HasFilePower())) {
      return Fail(ErrorCode::kLaunchFailed,
                  "the file-system identity of the command user cannot be taken on");
    }
  }
  if (CurrentFsUid() != 0) {
    return Fail(ErrorCode::kLaunchFailed, "the guest's own file-system identity did not return");
  }
  return identity;
}

bool Identity::BecomeForGood() const {
  if (switches_) {
    if (::setresgid(gid_, gid_, gid_) != 0 || ::setresuid(uid_, uid_, uid_) != 0) return false;
    if (separate_ && (::getuid() != uid_ || ::geteuid() != uid_ || HasFilePower())) return false;
  }
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // A change of ids may have made the process dumpable, and it holds a copy of the guest's memory.
  return ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}

Identity::Scope::Scope(const Identity& identity) : active_(identity.switches_) {
  if (!active_) return;
  ::setfsgid(identity.gid_);
  ::setfsuid(identity.uid_);
}

Identity::Scope::~Scope() {
  if (!active_) return;
  ::setfsuid(0);
  ::setfsgid(0);
}

}  // namespace caisson::guest
