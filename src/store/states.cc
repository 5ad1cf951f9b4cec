#include "store/states.h"

namespace caisson::store {
namespace {

using Run = RunStatus;
using Task = TaskStatus;
using Session = SessionStatus;
using Sandbox = SandboxStatus;

constexpr StatusInfo<Run> kRunStatuses[] = {
    {Run::kQueued, "queued", false},
    {Run::kActive, "active", false},
    {Run::kWaitingForApproval, "waiting_for_approval", false},
    {Run::kPaused, "paused", false},
    {Run::kCancelling, "cancelling", false},
    {Run::kDone, "done", true},
    {Run::kFailed, "failed", true},
    {Run::kCancelled, "cancelled", true},
    {Run::kInterrupted, "interrupted", true},
};
constexpr Transition<Run> kRunTransitions[] = {
    {Run::kQueued, Run::kActive},
    {Run::kQueued, Run::kCancelled},
    {Run::kQueued, Run::kFailed},
    {Run::kActive, Run::kWaitingForApproval},
    {Run::kActive, Run::kPaused},
    {Run::kActive, Run::kCancelling},
    {Run::kActive, Run::kDone},
    {Run::kActive, Run::kFailed},
    {Run::kActive, Run::kInterrupted},
    {Run::kWaitingForApproval, Run::kQueued},
    {Run::kWaitingForApproval, Run::kCancelled},
    {Run::kWaitingForApproval, Run::kFailed},
    {Run::kPaused, Run::kQueued},
    {Run::kPaused, Run::kCancelled},
    {Run::kCancelling, Run::kCancelled},
    {Run::kCancelling, Run::kFailed},
    {Run::kCancelling, Run::kInterrupted},
};

constexpr StatusInfo<Task> kTaskStatuses[] = {
    {Task::kSubmitted, "submitted", false},
    {Task::kWorking, "working", false},
    {Task::kInputRequired, "input_required", false},
    {Task::kCompleted, "completed", true},
    {Task::kFailed, "failed", true},
    {Task::kCanceled, "canceled", true},
    {Task::kRejected, "rejected", true},
};
constexpr Transition<Task> kTaskTransitions[] = {
    {Task::kSubmitted, Task::kWorking},      {Task::kSubmitted, Task::kCanceled},
    {Task::kSubmitted, Task::kFailed},       {Task::kSubmitted, Task::kRejected},
    {Task::kWorking, Task::kSubmitted},      {Task::kWorking, Task::kInputRequired},
    {Task::kWorking, Task::kCompleted},      {Task::kWorking, Task::kFailed},
    {Task::kWorking, Task::kCanceled},       {Task::kInputRequired, Task::kSubmitted},
    {Task::kInputRequired, Task::kCanceled}, {Task::kInputRequired, Task::kFailed},
};

constexpr StatusInfo<Session> kSessionStatuses[] = {
    {Session::kIdle, "idle", false},
    {Session::kActive, "active", false},
    {Session::kWaitingForApproval, "waiting_for_approval", false},
    {Session::kPaused, "paused", false},
    {Session::kDeleting, "deleting", true},
};
constexpr Transition<Session> kSessionTransitions[] = {
    {Session::kIdle, Session::kActive},
    {Session::kIdle, Session::kDeleting},
    {Session::kActive, Session::kIdle},
    {Session::kActive, Session::kWaitingForApproval},
    {Session::kActive, Session::kPaused},
    {Session::kWaitingForApproval, Session::kActive},
    {Session::kWaitingForApproval, Session::kIdle},
    {Session::kPaused, Session::kActive},
    {Session::kPaused, Session::kIdle},
};

constexpr StatusInfo<Sandbox> kSandboxStatuses[] = {
    {Sandbox::kRequested, "requested", false},
    {Sandbox::kProvisioning, "provisioning", false},
    {Sandbox::kReady, "ready", false},
    {Sandbox::kSuspended, "suspended", false},
    {Sandbox::kUnclean, "unclean", false},
    {Sandbox::kReleasing, "releasing", false},
    {Sandbox::kReleased, "released", true},
    {Sandbox::kFailed, "failed", true},
    {Sandbox::kLost, "lost", true},
};
constexpr Transition<Sandbox> kSandboxTransitions[] = {
    {Sandbox::kRequested, Sandbox::kProvisioning},
    {Sandbox::kRequested, Sandbox::kFailed},
    {Sandbox::kRequested, Sandbox::kReleased},
    {Sandbox::kProvisioning, Sandbox::kReady},
    {Sandbox::kProvisioning, Sandbox::kFailed},
    {Sandbox::kProvisioning, Sandbox::kUnclean},
    {Sandbox::kProvisioning, Sandbox::kReleasing},
    {Sandbox::kReady, Sandbox::kSuspended},
    {Sandbox::kReady, Sandbox::kUnclean},
    {Sandbox::kReady, Sandbox::kReleasing},
    {Sandbox::kReady, Sandbox::kLost},
    {Sandbox::kSuspended, Sandbox::kReady},
    {Sandbox::kSuspended, Sandbox::kUnclean},
    {Sandbox::kSuspended, Sandbox::kReleasing},
    {Sandbox::kSuspended, Sandbox::kLost},
    {Sandbox::kUnclean, Sandbox::kReleasing},
    {Sandbox::kUnclean, Sandbox::kLost},
    {Sandbox::kReleasing, Sandbox::kReleased},
};

constexpr RunEffect kRunEffects[] = {
    {Run::kQueued, Task::kSubmitted, Session::kActive},
    {Run::kActive, Task::kWorking, Session::kActive},
    {Run::kWaitingForApproval, Task::kInputRequired, Session::kWaitingForApproval},
    {Run::kPaused, Task::kInputRequired, Session::kPaused},
    {Run::kCancelling, Task::kWorking, Session::kActive},
    {Run::kDone, Task::kCompleted, Session::kIdle},
    {Run::kFailed, Task::kFailed, Session::kIdle},
    {Run::kCancelled, Task::kCanceled, Session::kIdle},
    {Run::kInterrupted, Task::kFailed, Session::kIdle},
};

}  // namespace

template <>
std::span<const StatusInfo<Run>> Statuses() {
  return kRunStatuses;
}
template <>
std::span<const StatusInfo<Task>> Statuses() {
  return kTaskStatuses;
}
template <>
std::span<const StatusInfo<Session>> Statuses() {
  return kSessionStatuses;
}
template <>
std::span<const StatusInfo<Sandbox>> Statuses() {
  return kSandboxStatuses;
}
template <>
std::span<const Transition<Run>> Transitions() {
  return kRunTransitions;
}
template <>
std::span<const Transition<Task>> Transitions() {
  return kTaskTransitions;
}
template <>
std::span<const Transition<Session>> Transitions() {
  return kSessionTransitions;
}
template <>
std::span<const Transition<Sandbox>> Transitions() {
  return kSandboxTransitions;
}
std::span<const RunEffect> RunEffects() { return kRunEffects; }

}  // namespace caisson::store
