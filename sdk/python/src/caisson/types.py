"""What the server answers, as dataclasses. Fields that a newer server adds are ignored."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Literal, TypeVar

from .errors import CommandError

T = TypeVar("T")


def make(cls: type[T], data: Mapping[str, Any]) -> T:
    """An object of the dataclass from those members of the JSON object that it knows."""
    known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: value for name, value in data.items() if name in known})


@dataclass(frozen=True)
class Page(Generic[T]):
    """A piece of a list; pass `next_cursor` as `cursor` to get the next one."""

    items: list[T]
    next_cursor: str | None = None


# Sandboxes.


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server's ledger has it; after its end, the receipt."""

    id: str
    backend: str
    profile: str
    status: str
    """requested, provisioning, ready, suspended, unclean, releasing; at last released, failed or
    lost."""
    generation: int
    """Changes with the status. `delete(generation=…)` is refused when it is another one."""
    created_at: str
    updated_at: str
    expires_at: str
    session_id: str | None = None
    status_reason: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        """Whether its end is confirmed."""
        return self.status in ("released", "failed", "lost")


@dataclass(frozen=True)
class Explanation:
    """Whether a sandbox would be made, by the decision that `create` makes, without making it."""

    allowed: bool
    backend: str | None = None
    profile: str | None = None
    isolation: str | None = None
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class SandboxUsage:
    """What a sandbox uses now, beside its limits; None is what the host does not tell."""

    cpus: float
    memory_limit_bytes: int
    pids_limit: int
    disk_limit_bytes: int
    cpu_ms: int | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    pids: int | None = None
    disk_bytes: int | None = None


# Commands.


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and its output."""

    id: str
    code: int | None
    """The program's own exit code; None when there is none (a signal, a timeout, …)."""
    signal: str | None
    reason: str
    """exited, signaled, timeout, oom, killed, output_limit or lost."""
    duration_ms: int = 0
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    stdout: str = ""
    """As text; bytes that are no UTF-8 are replaced, and whole in `stdout_raw`."""
    stderr: str = ""
    stdout_raw: bytes = b""
    stderr_raw: bytes = b""
    stdout_bytes: int = 0
    """How much it wrote, dropped output included."""
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    still_running: int = 0
    """Processes that the command left behind."""
    stdout_kept_bytes: int | None = None
    """What `keep_bytes` kept of it, to be read with `output`; None when nothing was asked for."""
    stderr_kept_bytes: int | None = None

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def truncated(self) -> bool:
        return self.stdout_truncated or self.stderr_truncated

    def check(self) -> ExecResult:
        """This result; raises `CommandError` unless the exit code is 0."""
        if self.ok:
            return self
        how = f"exit code {self.code}" if self.code is not None else self.reason
        said = (self.stderr or self.stdout).strip()[-500:]
        raise CommandError("command_failed", f"the command ended with {how}: {said}")


@dataclass(frozen=True)
class ExecStarted:
    """The command runs."""

    id: str


@dataclass(frozen=True)
class ExecOutput:
    """A piece of output; text is never cut inside a character."""

    stream: Literal["stdout", "stderr"]
    text: str
    raw: bytes
    offset: int


@dataclass(frozen=True)
class ExecGap:
    """Output that was dropped here."""

    skipped_bytes: int
    reason: str


@dataclass(frozen=True)
class ExecState:
    """A command that was started with `execs.start`."""

    id: str
    state: Literal["running", "ended"]
    pid: int
    started_at_ms: int
    offset: int
    """Output so far, in bytes of both streams together."""
    first_kept_offset: int
    """From where on the stream can still be followed."""
    exit: ExecResult | None
    """How it ended, without its output; None while it runs."""


ExecEvent = ExecStarted | ExecOutput | ExecGap | ExecResult
"""What a command's stream yields; an `ExecResult`, without output, is the last one."""


# Files and search.


@dataclass(frozen=True)
class FileEntry:
    """A file, directory, link or other thing. `…_base64` is there where a name is no UTF-8."""

    path: str
    name: str = ""
    type: str | None = None
    """file, directory, symlink, fifo, socket or device."""
    size_bytes: int | None = None
    mode: str | None = None
    uid: int | None = None
    gid: int | None = None
    modified_at_ms: int | None = None
    target: str | None = None
    media_type: str | None = None
    text: bool | None = None
    path_base64: str | None = None
    name_base64: str | None = None
    target_base64: str | None = None
    error: str | None = None

    @property
    def is_dir(self) -> bool:
        return self.type == "directory"


@dataclass(frozen=True)
class AppliedSet:
    """What became of a read-only set."""

    digest: str
    changed: bool
    missing: list[str] = field(default_factory=list)
    """Hashes of contents that the sandbox has not got; then nothing has changed."""


@dataclass(frozen=True)
class Listing:
    entries: list[FileEntry]
    truncated: bool


@dataclass(frozen=True)
class Lines:
    """A window of a text file."""

    text: str
    """The lines, joined with newlines, without the last one's."""
    total_lines: int | None = None
    start_line: int = 1
    """From 1; an empty window has `end_line` = `start_line` − 1."""
    end_line: int = 0
    next_offset: int | None = None
    """The `offset` of the next window; None at the end."""
    cut: bool = False
    """A line was cut by a byte limit."""
    size_bytes: int = 0


@dataclass(frozen=True)
class WrittenFile:
    size_bytes: int
    sha256: str
    created: bool


@dataclass(frozen=True)
class EditedFile:
    count: int
    sha256: str
    size_bytes: int
    diff: str | None = None
    """Of a dry run: what would change, unified."""
    diff_cut: bool = False


@dataclass(frozen=True)
class CopiedFiles:
    files: int
    directories: int
    links: int
    size_bytes: int
    skipped: int
    """FIFOs, sockets and devices."""


@dataclass(frozen=True)
class UploadedFile:
    """What became of one file of an upload: `size_bytes`, or `code` and `message`."""

    path: str
    size_bytes: int | None = None
    code: str | None = None
    message: str | None = None

    @property
    def ok(self) -> bool:
        return self.code is None


@dataclass(frozen=True)
class DownloadedFile:
    """What became of one file of a download: `content`, or `code` and `message`."""

    path: str
    content: bytes | None = None
    mode: str | None = None
    code: str | None = None
    message: str | None = None

    @property
    def ok(self) -> bool:
        return self.code is None


@dataclass(frozen=True)
class FileChange:
    path: str
    kind: Literal["created", "modified", "removed"]
    """Something renamed is removed and created; created may be in place of something else."""
    directory: bool = False
    path_base64: str | None = None


@dataclass(frozen=True)
class FileChanges:
    """What changed within a moment, each path once."""

    changes: list[FileChange]


@dataclass(frozen=True)
class WatchOverflow:
    """Changes were lost: look at the directory yourself. Watching goes on."""

    reason: str
    """queue, pending or directories."""


WatchEvent = FileChanges | WatchOverflow
"""What `files.watch` yields."""


@dataclass(frozen=True)
class GlobResult:
    matches: list[FileEntry]
    truncated: bool
    reason: str | None = None
    """limit or deadline, when truncated."""
    unreadable: int = 0
    """Directories that could not be looked into."""


@dataclass(frozen=True)
class GrepMatch:
    path: str
    line: int
    text: str
    cut: bool = False
    context: bool = False
    """No match itself: a line around one."""
    path_base64: str | None = None
    text_base64: str | None = None


@dataclass(frozen=True)
class GrepResult:
    matches: list[GrepMatch]
    truncated: bool
    reason: str | None = None
    files_searched: int = 0
    binary_skipped: int = 0
    unreadable: int = 0


# Agents, sessions, runs.


@dataclass(frozen=True)
class Definition:
    """A revision of an agent or a model provider."""

    name: str
    revision: int
    digest: str
    created_at: str
    updated_at: str
    definition: Mapping[str, Any]


@dataclass(frozen=True)
class Session:
    id: str
    agent: str
    title: str
    status: str
    last_seq: int
    created_at: str
    updated_at: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    active_run: str | None = None


@dataclass(frozen=True)
class Run:
    id: str
    session_id: str
    task_id: str
    status: str
    attempt: int
    first_seq: int
    created_at: str
    manifest_digest: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    error: Mapping[str, str] | None = None

    @property
    def over(self) -> bool:
        """Whether it does nothing more by itself."""
        return self.status in RUN_OVER


RUN_OVER = frozenset(
    ("done", "failed", "cancelled", "interrupted", "waiting_for_approval", "paused")
)


@dataclass(frozen=True)
class Submitted:
    run: Run
    message_id: str
    replayed: bool


@dataclass(frozen=True)
class Released:
    """What became of a session's sandbox: `complete` (it is gone), `pending` (it is being removed),
    `busy` (a run, a call or a command is in it) or `absent` (there never was one)."""

    status: str
    sandbox: SandboxInfo | None = None


@dataclass(frozen=True)
class Event:
    """An entry of a session's log; `docs/api.md` tells the envelope."""

    seq: int
    type: str
    session_id: str
    at: str
    data: Mapping[str, Any]
    version: int = 1
    visibility: str = ""
    run_id: str | None = None
    task_id: str | None = None


@dataclass(frozen=True)
class EventPage:
    items: list[Event]
    last_seq: int
    """The `after` of the next page."""


def raw_bytes(data: Mapping[str, Any], name: str) -> bytes:
    """The bytes behind a text of the API: in base64 beside it where they are no UTF-8."""
    encoded = data.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return str(data.get(name, "")).encode()
