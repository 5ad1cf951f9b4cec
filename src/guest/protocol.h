// The guest protocol, as constants: what the server and caisson-guest must agree on to the byte.
// docs/guest-protocol.md is the specification; this header holds its numbers and names.
//
// Freestanding and dependency-free: it is compiled into the guest (musl, no exceptions) and the
// server alike. A change here is a change of the protocol: raise kProtocolVersion when an older
// peer would misunderstand it, and keep understanding the version before (DESIGN.md, rule 11).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace caisson::guest {

inline constexpr uint32_t kProtocolVersion = 1;
// The oldest version that this build still speaks.
inline constexpr uint32_t kMinProtocolVersion = 1;

// --- Requests -------------------------------------------------------------------------------

// `Authorization: Bearer <token>`: the token of this sandbox, on every request but /v1/hello.
inline constexpr std::string_view kHeaderAuthorization = "authorization";
// Decimal fence of the calling owner, on every mutating request. The guest remembers the highest
// and answers `stale_owner` below it. Absent means 0.
inline constexpr std::string_view kHeaderFence = "caisson-fence";
// Milliseconds this call may take, counted from its arrival; absent means kDefaultDeadlineMs.
// It bounds file and search calls; a command has its own timeout.
inline constexpr std::string_view kHeaderDeadline = "caisson-deadline-ms";
// On replies with a raw body: one line of ASCII JSON that describes it.
inline constexpr std::string_view kHeaderMeta = "caisson-meta";

inline constexpr std::string_view kMediaJson = "application/json";
inline constexpr std::string_view kMediaBytes = "application/octet-stream";
// A stream of records, see RecordHeader.
inline constexpr std::string_view kMediaRecords = "application/vnd.caisson.records";
inline constexpr std::string_view kMediaTar = "application/x-tar";

// --- Paths of the calls -----------------------------------------------------------------------

inline constexpr std::string_view kPathHello = "/v1/hello";
inline constexpr std::string_view kPathHealth = "/v1/health";
inline constexpr std::string_view kPathExecs =
    "/v1/execs";  // /{id}, /{id}/stream|output|stdin|signal|resize
inline constexpr std::string_view kPathFileStat = "/v1/files/stat";
inline constexpr std::string_view kPathFileList = "/v1/files/list";
inline constexpr std::string_view kPathFileContent = "/v1/files/content";
inline constexpr std::string_view kPathFileLines = "/v1/files/lines";
inline constexpr std::string_view kPathFileEdit = "/v1/files/edit";
inline constexpr std::string_view kPathFileMkdir = "/v1/files/mkdir";
inline constexpr std::string_view kPathFileMove = "/v1/files/move";
inline constexpr std::string_view kPathFileCopy = "/v1/files/copy";
inline constexpr std::string_view kPathFileRemove = "/v1/files/remove";
inline constexpr std::string_view kPathFileUpload = "/v1/files/upload";
inline constexpr std::string_view kPathFileDownload = "/v1/files/download";
inline constexpr std::string_view kPathFileArchive = "/v1/files/archive";
inline constexpr std::string_view kPathFileWatch = "/v1/files/watch";
inline constexpr std::string_view kPathSets = "/v1/sets";
inline constexpr std::string_view kPathSetApply = "/v1/sets/apply";
inline constexpr std::string_view kPathSetBlob = "/v1/sets/blob";
inline constexpr std::string_view kPathGlob = "/v1/search/glob";
inline constexpr std::string_view kPathGrep = "/v1/search/grep";
inline constexpr std::string_view kPathShutdown = "/v1/shutdown";

// --- Limits -----------------------------------------------------------------------------------

inline constexpr size_t kMaxHeaderBytes = 16 * 1024;
inline constexpr size_t kMaxJsonBytes = 16 * 1024 * 1024;  // carries command text of megabytes
inline constexpr size_t kMaxPathBytes = 4096;              // PATH_MAX, terminating NUL included
inline constexpr size_t kMaxNameBytes = 255;               // NAME_MAX
inline constexpr size_t kMaxConnections = 64;
inline constexpr size_t kMaxExecs = 256;          // running at once
inline constexpr size_t kMaxFinishedExecs = 256;  // kept for late comers; the oldest goes first
// MAX_ARG_STRLEN of Linux: one argument or environment string, its NUL included. Shell text above
// it runs from a file; an argv element or an environment value above it is `argument_too_large`.
inline constexpr size_t kMaxArgBytes = 128 * 1024;
inline constexpr uint32_t kDefaultDeadlineMs = 30'000;
inline constexpr uint32_t kMaxDeadlineMs = 600'000;
inline constexpr size_t kReplayBytes = 256 * 1024;          // output kept per exec for late comers
inline constexpr int64_t kMaxKeptBytes = int64_t{1} << 30;  // of an exec's output, in files
inline constexpr size_t kMaxRecordBytes = 64 * 1024;        // payload of one record
inline constexpr uint32_t kKillGraceMs = 10'000;  // from SIGKILL to giving up on confirmation
inline constexpr uint32_t kDrainMs = 100;  // after the command's exit, for bytes still in its pipes

// Many files in one call. A sandbox has caps of its own for each direction, in its configuration:
// what applies when a call does not say, and what it may say at most. These are the caps when the
// configuration does not say, and what it may say at most.
struct BatchLimits {
  int64_t max_files = 64;
  int64_t max_file_bytes = 8 * 1024 * 1024;
  int64_t max_total_bytes = 32 * 1024 * 1024;
};
inline constexpr BatchLimits kBatchCeiling{256, 64 * 1024 * 1024, 256 * 1024 * 1024};

inline constexpr size_t kMaxSets = 16;
inline constexpr size_t kMaxSetFiles = 10'000;

// Of an archive that is unpacked, when the call does not say.
inline constexpr int64_t kArchiveEntries = 10'000;
inline constexpr int64_t kMaxArchiveEntries = 1'000'000;  // what it may say
inline constexpr int64_t kArchiveBytes = int64_t{1} << 30;

// Of watching: streams in one guest, and directories of one stream (fewer when their paths
// together are longer than kMaxWatchedPathBytes).
inline constexpr size_t kMaxWatches = 8;
inline constexpr size_t kMaxWatchedDirectories = 8'192;
inline constexpr size_t kMaxWatchedPathBytes = 1024 * 1024;
// Changes that wait for a slow reader; with more, or with longer paths, they are an overflow.
inline constexpr size_t kMaxPendingChanges = 4'096;
inline constexpr size_t kMaxPendingPathBytes = 1024 * 1024;
inline constexpr uint32_t kWatchWindowMs = 50;  // changes within it are one record

// --- Records ----------------------------------------------------------------------------------

// A record stream is a sequence of records: a 16-byte header, then `length` bytes of payload. All
// numbers are little-endian. Records are not aligned to HTTP chunks.
enum class RecordType : uint8_t {
  kStarted = 1,    // JSON; always first on a stream from offset 0
  kStdout = 2,     // bytes
  kStderr = 3,     // bytes
  kGap = 4,        // JSON {"skipped_bytes", "reason"}: output that was not kept
  kExit = 5,       // JSON; always last, exactly one
  kKeepAlive = 6,  // empty; sent after kKeepAliveMs without another record

  // Of a batch of files, where `offset` counts the file's bytes.
  kFile = 16,       // JSON {"path", …}; a file begins
  kFileBytes = 17,  // bytes of it
  kFileError = 18,  // JSON {"path", "code", "message"}; in place of a file, or the end of one
  kBatchEnd = 19,   // JSON {}; always last in a reply, not in a request

  // Of a watch, where `offset` is 0; kKeepAlive may be among them.
  kWatching = 32,       // JSON {"directories", "unreadable"}; always first
  kChanges = 33,        // JSON {"changes": [{"path", "kind", "directory"}…]}
  kWatchOverflow = 34,  // JSON {"reason"}; changes were lost
  kWatchEnd = 35,       // JSON {"reason"}; always last: the watched directory is gone
};
constexpr bool IsExecRecord(uint8_t type) { return type >= 1 && type <= 6; }
constexpr bool IsFileRecord(uint8_t type) { return type >= 16 && type <= 19; }
constexpr bool IsWatchRecord(uint8_t type) { return type == 6 || (type >= 32 && type <= 35); }
inline constexpr uint32_t kKeepAliveMs = 10'000;

struct RecordHeader {
  RecordType type{};
  uint32_t length = 0;  // of the payload, at most kMaxRecordBytes
  // Position of the first payload byte in the exec's output: stdout and stderr bytes counted
  // together in arrival order, skipped ones included. For other types, the current position.
  // Ignored in a request.
  uint64_t offset = 0;

  static constexpr size_t kSize = 16;
};

// Layout: [0] type, [1..3] zero, [4..7] length, [8..15] offset.
inline std::array<uint8_t, RecordHeader::kSize> EncodeRecordHeader(const RecordHeader& header) {
  std::array<uint8_t, RecordHeader::kSize> bytes{};
  bytes[0] = static_cast<uint8_t>(header.type);
  for (size_t i = 0; i < 4; i++) bytes[4 + i] = static_cast<uint8_t>(header.length >> (8 * i));
  for (size_t i = 0; i < 8; i++) bytes[8 + i] = static_cast<uint8_t>(header.offset >> (8 * i));
  return bytes;
}

// Nothing if the bytes are not a valid header: unknown type, padding set, length over the limit.
inline std::optional<RecordHeader> DecodeRecordHeader(
    const std::array<uint8_t, RecordHeader::kSize>& bytes) {
  RecordHeader header;
  bool known = IsExecRecord(bytes[0]) || IsFileRecord(bytes[0]) || IsWatchRecord(bytes[0]);
  if (!known || bytes[1] != 0 || bytes[2] != 0 || bytes[3] != 0) return std::nullopt;
  header.type = static_cast<RecordType>(bytes[0]);
  for (size_t i = 0; i < 4; i++) header.length |= static_cast<uint32_t>(bytes[4 + i]) << (8 * i);
  for (size_t i = 0; i < 8; i++) header.offset |= static_cast<uint64_t>(bytes[8 + i]) << (8 * i);
  if (header.length > kMaxRecordBytes) return std::nullopt;
  return header;
}

// --- Why an exec ended ------------------------------------------------------------------------

// The `reason` of an exit record. Said only on evidence: `oom` needs the kernel's own count.
enum class ExitReason : uint8_t {
  kExited,
  kSignaled,
  kTimeout,
  kOom,
  kKilled,
  kOutputLimit,
  kLost
};

struct ExitReasonName {
  ExitReason reason;
  std::string_view name;
};
inline constexpr std::array<ExitReasonName, 7> kExitReasons{{
    {ExitReason::kExited, "exited"},             // it ended by itself; `code` is its own
    {ExitReason::kSignaled, "signaled"},         // a signal that Caisson did not send
    {ExitReason::kTimeout, "timeout"},           // its timeout passed and its tree was killed
    {ExitReason::kOom, "oom"},                   // the kernel's out-of-memory killer struck
    {ExitReason::kKilled, "killed"},             // a caller killed it
    {ExitReason::kOutputLimit, "output_limit"},  // it wrote more than its limit allows
    {ExitReason::kLost, "lost"},                 // its end was not seen; the outcome is unknown
}};

constexpr std::string_view NameOf(ExitReason reason) {
  return kExitReasons[static_cast<size_t>(reason)].name;
}
constexpr std::optional<ExitReason> ExitReasonFromName(std::string_view name) {
  for (const ExitReasonName& row : kExitReasons) {
    if (row.name == name) return row.reason;
  }
  return std::nullopt;
}

// --- Start-up ---------------------------------------------------------------------------------

// How a guest is started: `caisson-guest serve`, with everything else in descriptors and these
// environment variables (names below), which it removes from its own environment. Its spawner,
// where whoever starts the guest starts that too, is `caisson-guest spawn` with CONFIG_FD,
// SPAWNER_FD and optionally FILTER_FD.
//   CAISSON_GUEST_LISTEN_FD   listening stream socket; its channel
//   CAISSON_GUEST_TOKEN_FD    a file whose whole content is the token; read once and closed
//   CAISSON_GUEST_CONFIG_FD   a file holding the start-up configuration, JSON (see the document)
//   CAISSON_GUEST_FILTER_FD   optional: a seccomp program (struct sock_filter[]) for commands
//   CAISSON_GUEST_CGROUP_FD   optional: directory of a cgroup-v2 tree it may make children in
//   CAISSON_GUEST_MEMEVENTS_FD optional: read-only memory events, the evidence for `oom`
//   CAISSON_GUEST_SPAWNER_FD  optional: one end of a seqpacket socket pair, whose other end a
//                             spawner has; without it the guest forks one
//   CAISSON_GUEST_SYNC_FD     optional: stream socket to whoever started it, see kSync*
inline constexpr std::string_view kEnvListenFd = "CAISSON_GUEST_LISTEN_FD";
inline constexpr std::string_view kEnvTokenFd = "CAISSON_GUEST_TOKEN_FD";
inline constexpr std::string_view kEnvConfigFd = "CAISSON_GUEST_CONFIG_FD";
inline constexpr std::string_view kEnvFilterFd = "CAISSON_GUEST_FILTER_FD";
inline constexpr std::string_view kEnvCgroupFd = "CAISSON_GUEST_CGROUP_FD";
inline constexpr std::string_view kEnvMemEventsFd = "CAISSON_GUEST_MEMEVENTS_FD";
inline constexpr std::string_view kEnvSpawnerFd = "CAISSON_GUEST_SPAWNER_FD";
inline constexpr std::string_view kEnvSyncFd = "CAISSON_GUEST_SYNC_FD";

// On the sync socket the guest writes kSyncReady when its spawner has said that it is there, and
// serves. On failure it writes kSyncFailed, then one line of text, and exits.
inline constexpr char kSyncReady = 'R';
inline constexpr char kSyncFailed = 'F';

}  // namespace caisson::guest
