// Acting as the command user: with the file-system identity for a call in the loop, or for good in
// a worker child.
#pragma once

#include "base/error.h"
#include "guest/config.h"

namespace caisson::guest {

class Identity {
 public:
  // Takes over the user's supplementary groups for the whole process (a root guest needs none of
  // its own) and proves that the switch drops every power over files; kLaunchFailed if it does not.
  // A guest that is not root is the command user already and switches nothing.
  static Result<Identity> Establish(const CommandUser& user);

  // Commands run as another user than the guest.
  bool separate() const { return separate_; }
  bool switches() const { return switches_; }
  // Whether this process must become another to act as `user`. Not with one uid for both and no
  // power over files to lay down: so it is without root, where the only uid may be 0 inside,
  // without a single capability.
  static bool Switches(const CommandUser& user);
  uid_t uid() const { return uid_; }

  // For a forked worker: all ids, no way back, not traceable. False means: exit at once.
  [[nodiscard]] bool BecomeForGood() const;

  // The file-system ids of the command user while it lives. Nothing else may run meanwhile.
  class Scope {
   public:
    explicit Scope(const Identity& identity);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const bool active_;
  };

 private:
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  bool switches_ = false;
  bool separate_ = false;
};

}  // namespace caisson::guest
