// The states of sessions, tasks, runs and sandboxes, and which change to which is legal: written
// once, as data. The store refuses every other change (kIllegalTransition); the property tests read
// the same tables.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace caisson::store {

// A run is one attempt at a task. Active: everything but the four ends.
enum class RunStatus : uint8_t {
  kQueued,              // submitted, no worker yet
  kActive,              // a worker has it
  kWaitingForApproval,  // parked until somebody decides; no worker
  kPaused,              // parked by a caller; no worker
  kCancelling,          // a cancel was asked for; its worker ends it
  kDone,
  kFailed,
  kCancelled,
  kInterrupted,  // its worker died and it is not continued
};

// A task is requested work; its attempts are runs.
enum class TaskStatus : uint8_t {
  kSubmitted,
  kWorking,
  kInputRequired,
  kCompleted,
  kFailed,
  kCanceled,
  kRejected
};

// A session is a conversation. No end of a run ends it: only deletion does.
enum class SessionStatus : uint8_t { kIdle, kActive, kWaitingForApproval, kPaused, kDeleting };

enum class SandboxStatus : uint8_t {
  kRequested,     // the row exists, no provider was asked yet
  kProvisioning,  // the provider may have been asked
  kReady,
  kSuspended,
  kUnclean,    // its state is not known; never used again
  kReleasing,  // its end was asked for
  kReleased,   // gone, confirmed; the row is the receipt
  kFailed,     // was never ready; gone, confirmed
  kLost,       // disappeared by itself
};

template <typename Status>
struct StatusInfo {
  Status status;
  std::string_view name;  // in rows, events and the API
  bool terminal;
};
template <typename Status>
struct Transition {
  Status from;
  Status to;
};

// The tables, one specialisation a status type.
template <typename Status>
std::span<const StatusInfo<Status>> Statuses();
template <typename Status>
std::span<const Transition<Status>> Transitions();

template <>
std::span<const StatusInfo<RunStatus>> Statuses();
template <>
std::span<const StatusInfo<TaskStatus>> Statuses();
template <>
std::span<const StatusInfo<SessionStatus>> Statuses();
template <>
std::span<const StatusInfo<SandboxStatus>> Statuses();
template <>
std::span<const Transition<RunStatus>> Transitions();
template <>
std::span<const Transition<TaskStatus>> Transitions();
template <>
std::span<const Transition<SessionStatus>> Transitions();
template <>
std::span<const Transition<SandboxStatus>> Transitions();

// What a run's change makes of its task and its session.
struct RunEffect {
  RunStatus run;
  TaskStatus task;
  SessionStatus session;
};
std::span<const RunEffect> RunEffects();

template <typename Status>
std::string_view NameOf(Status status) {
  return Statuses<Status>()[static_cast<size_t>(status)].name;
}
template <typename Status>
bool IsTerminal(Status status) {
  return Statuses<Status>()[static_cast<size_t>(status)].terminal;
}
template <typename Status>
std::optional<Status> StatusFromName(std::string_view name) {
  for (const auto& row : Statuses<Status>()) {
    if (row.name == name) return row.status;
  }
  return std::nullopt;
}
template <typename Status>
bool IsLegal(Status from, Status to) {
  for (const auto& row : Transitions<Status>()) {
    if (row.from == from && row.to == to) return true;
  }
  return false;
}

}  // namespace caisson::store
