"""A Caisson sandbox as a backend of Deep Agents; needs the extra: `caisson[deepagents]`.

    from caisson.deepagents import CaissonSandbox, sandbox_spec
    from deepagents import create_deep_agent

    with CaissonSandbox(sandbox_spec(), thread_id="conversation-1") as backend:
        agent = create_deep_agent(model=…, backend=backend)

Every method is a call of Caisson's API; nothing is made of shell commands, and the sandbox needs
no Python.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import posixpath
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepMatch,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from ._admission import Admission, Turn
from ._async.client import AsyncClient
from ._sync.client import Client
from .errors import (
    AccessDeniedError,
    CaissonError,
    CommandError,
    ConflictError,
    ConnectionFailedError,
    EditError,
    FileError,
    InvalidRequestError,
    SandboxRefusedError,
    SearchError,
    TryLaterError,
)
from .types import ExecResult, FileEntry, SandboxInfo

log = logging.getLogger("caisson")
R = TypeVar("R")

# What a model is told when a command has no result: these sentences and no others. The words of
# the server and of the operating system go to the log.
UNAVAILABLE = "[caisson] unavailable: the sandbox cannot be used now; nothing was run."
UNFINISHED = "[caisson] timeout: the command did not finish in {seconds} s and was ended."
NO_RESULT = "[caisson] no_result: the call ended without a result; it may have had effects."
OUTPUT_DROPPED = "[caisson] output_limit: output over {limit} bytes was dropped."
UNBOUNDED = "[caisson] not_bounded: output cannot be limited to {limit} bytes; nothing was run."
DISCARDED = " The sandbox is discarded with its files; the next call gets a new one."
UPLOAD_UNFINISHED = "[caisson] upload_unfinished: none of the files can be relied on."
DOWNLOAD_UNFINISHED = "[caisson] download_unfinished: no file arrived whole."

NO_OUTPUT = "<no output>"
STDERR_PREFIX = "[stderr] "
NOTE_PREFIX = "[note] "

ARTIFACTS = ("/large_tool_results", "/conversation_history", "/blobs")
"""Where Deep Agents puts what is too much for a model."""

_WRITABLE = ("/workspace", "/home/user", "/tmp", "/var/tmp")  # in every sandbox
_CAPABILITIES = frozenset(("exec", "files_in", "files_out"))
_PREVIEW_BYTES = 512_000
_GREP_MATCHES = 10_000  # what the server gives at most
_GREP_LINE_BYTES = 64 * 1024
_LIST_PAGE = 10_000
_CALL_SECONDS = 60.0
_UNLIMITED_SECONDS = 24 * 3600.0
_CLOSE_SECONDS = 10.0
_HOST = re.compile(
    r"(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
# What a model can look at only as an attachment, whatever bytes the file has.
_MEDIA = frozenset(
    ".png .jpg .jpeg .webp .gif .heic .heif .mp4 .mpeg .mpg .mov .avi .flv .webm .wmv .3gpp .mkv "
    ".wav .mp3 .aiff .aac .ogg .flac .pdf .ppt .pptx".split()
)
# Codes of Deep Agents for upload and download; any other code goes as it is.
_TRANSFER_ERRORS = {
    "file_access_denied": "permission_denied",
    "read_only": "permission_denied",
    "outside_root": "permission_denied",
    "not_a_directory": "invalid_path",
    "not_a_regular_file": "invalid_path",
    "symlink_loop": "invalid_path",
}
# Errors after which the sandbox is not, or must not be, used again.
_DEAD = frozenset(("sandbox_lost", "sandbox_unclean", "stale_owner", "not_found"))
# Errors that say that nothing was done.
_REFUSALS = frozenset(("sandbox_not_ready", "sandbox_busy", "sandbox_suspended"))


@dataclass(frozen=True)
class TransferLimits:
    """Limits of `upload_files` and of `download_files`.

    A batch of too many files is refused whole. A file over its limit, or over what is left of the
    total, is refused alone. A download over a limit is refused, never cut.
    """

    max_file_bytes: int = 8 << 20
    max_total_bytes: int = 32 << 20
    max_files: int = 64


@dataclass(frozen=True)
class SandboxSpec:
    """What a Deep Agents sandbox is to be; `sandbox_spec` makes it."""

    kind: str = "deepagents"
    profile: str | None = None
    network: str = "closed"
    egress_allow: tuple[str, ...] = ()
    work_dir: str | None = "/workspace"
    requires: frozenset[str] = _CAPABILITIES
    isolation_scope: str = "conversation"
    call_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    writable_paths: tuple[str, ...] = ARTIFACTS
    """Besides the working directory, the home directory and /tmp."""
    ttl_ms: int | None = None
    execute_timeout: float = 120
    """Seconds for a command, and for the sandbox before it, when the call names none."""
    max_output_bytes: int = 1 << 20
    limits: TransferLimits = TransferLimits()
    after_unfinished: Literal["dispose", "keep"] = "dispose"
    """What becomes of the sandbox after a command that timed out or was cancelled. `keep` relies
    on the server, which ends the whole process tree and refuses a sandbox where it cannot."""


def sandbox_spec(
    *,
    profile: str | None = None,
    egress_allow: Sequence[str] = (),
    work_dir: str = "/workspace",
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, Any] | None = None,
    writable_paths: Sequence[str] = (),
    ttl_ms: int | None = None,
    execute_timeout: float = 120,
    max_output_bytes: int = 1 << 20,
    limits: TransferLimits | None = None,
    after_unfinished: Literal["dispose", "keep"] = "dispose",
) -> SandboxSpec:
    """A specification. Without `egress_allow` the network is closed; with it, only these hosts
    are reached, or the sandbox is refused where that cannot be enforced. `writable_paths` are more
    directories that can be written to, besides the working directory and Deep Agents' own."""
    if isinstance(egress_allow, str):
        raise ValueError("egress_allow is a list of hosts, not one text")
    hosts = tuple(sorted({host.lower() for host in egress_allow}))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f"egress_allow: {host!r} is no host name (or *.name)")
    return SandboxSpec(
        profile=profile,
        network="allow_list" if hosts else "closed",
        egress_allow=hosts,
        work_dir=work_dir,
        env=dict(env or {}),
        resources=dict(resources or {}),
        writable_paths=(*ARTIFACTS, *writable_paths),
        ttl_ms=ttl_ms,
        execute_timeout=execute_timeout,
        max_output_bytes=max_output_bytes,
        limits=limits or TransferLimits(),
        after_unfinished=after_unfinished,
    )


def _check(spec: SandboxSpec) -> None:
    """Refuses what this adapter does not do, whoever made the specification."""

    def refuse(code: str, detail: str) -> None:
        raise SandboxRefusedError(code, detail)

    missing = _CAPABILITIES - spec.requires
    if missing:
        refuse("capability_missing", f"requires lacks {', '.join(sorted(missing))}")
    unknown = spec.requires - _CAPABILITIES
    if unknown:
        refuse("capability_not_supported", f"requires has {', '.join(sorted(unknown))}")
    if spec.isolation_scope != "conversation":
        refuse(
            "isolation_scope_not_supported",
            f"isolation_scope is {spec.isolation_scope!r}; only 'conversation' is supported",
        )
    if spec.call_id:
        refuse("call_id_not_empty", "a sandbox of a conversation has no call_id")
    if spec.network == "unrestricted":
        refuse("egress_not_permitted", "network 'unrestricted' is not for agents; name the hosts")
    if bool(spec.egress_allow) != (spec.network == "allow_list"):
        refuse("egress_not_permitted", "egress_allow and network 'allow_list' go together")
    if spec.work_dir is None or not spec.work_dir.startswith("/"):
        refuse("invalid_work_dir", f"work_dir is {spec.work_dir!r}; it must be an absolute path")
    if not 0 < spec.execute_timeout <= 24 * 3600:
        refuse("invalid_timeout", f"execute_timeout is {spec.execute_timeout}; 0 < t <= 86400 s")
    if spec.max_output_bytes < 1024:
        refuse("invalid_limit", f"max_output_bytes is {spec.max_output_bytes}; at least 1024")
    if min(spec.limits.max_file_bytes, spec.limits.max_total_bytes, spec.limits.max_files) < 1:
        refuse("invalid_limit", "each of limits is at least 1")


class _NotAdmittedError(Exception):
    """There is no sandbox for the operation."""


Steps = Generator[Callable[[Any], Any], Any, R]
"""An operation: it yields calls on a sandbox, of either client, and gets their results."""


@dataclass
class _Operation(Generic[R]):
    steps: Steps[R]
    failed: Callable[[str], R]
    """The result that says the sentence."""
    changes: bool = False
    """Whether an unknown end leaves the sandbox in an unknown state."""
    deadline: float = 0.0
    unknown: str = ""
    """The sentence for an end that is not known."""

    def __post_init__(self) -> None:
        self.deadline = self.deadline or time.monotonic() + _CALL_SECONDS
        self.unknown = self.unknown or (NO_RESULT if self.changes else UNAVAILABLE)

    def remaining(self) -> float:
        return max(0.001, self.deadline - time.monotonic())


class _DoomError(Exception):
    """Ends an operation with a result, and the sandbox with it."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


class CaissonSandbox(BaseSandbox):
    """A sandbox of one conversation for Deep Agents.

    Making it asks the server whether the specification is allowed (`SandboxRefusedError` says why
    not) and makes no sandbox: the first operation does. It may be used from threads and event
    loops at once. Close it with `close()` or `aclose()`, or use it with `with`.

    `thread_id` and `agent_id` come from the host, never from a model: `id` is made of them.
    `legacy=True` is the contract before Deep Agents 0.7, for suites that still test it: `write`
    refuses a file that exists, `glob` gives relative paths and directories.
    """

    def __init__(
        self,
        spec: SandboxSpec | None = None,
        *,
        client: Client | None = None,
        thread_id: str | None = None,
        agent_id: str = "",
        legacy: bool = False,
    ) -> None:
        self._spec = spec or sandbox_spec()
        _check(self._spec)
        self._owns_client = client is None
        self._client = client or Client()
        self._async_client = AsyncClient(settings=self._client.settings)
        self._legacy = legacy
        self._body: dict[str, Any] = {
            "profile": self._spec.profile,
            "network": self._spec.network,
            "ttl_ms": self._spec.ttl_ms,
            "env": self._spec.env or None,
            "resources": self._spec.resources or None,
            "writable_paths": [*self._spec.writable_paths, *self._added_work_dir()],
        }
        try:
            explanation = self._client.sandboxes.explain(**self._body)
            if not explanation.allowed:
                raise SandboxRefusedError(explanation.code or "refused", explanation.detail or "")
        except BaseException:
            if self._owns_client:
                self._client.close()
            raise
        parts = [
            explanation.backend,
            sorted(self._client.settings.scope.items()),
            thread_id or str(uuid.uuid4()),
            agent_id,
            self._spec.kind,
            self._spec.network,
            sorted(self._spec.egress_allow),
        ]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        self._id = f"caisson-{digest[:16]}"
        self._gate = Admission(self._client.sandboxes.dispose)
        self._ending: set[asyncio.Task[bool]] = set()

    @classmethod
    async def acreate(cls, *args: Any, **kwargs: Any) -> CaissonSandbox:
        """The same as calling the class, without blocking the event loop."""
        return await asyncio.to_thread(cls, *args, **kwargs)

    @property
    def id(self) -> str:
        """Stable for one conversation, agent and specification; not the id of an instance."""
        return self._id

    @property
    def sandbox_info(self) -> SandboxInfo | None:
        """The sandbox that is used now; None before the first operation and after a disposal."""
        return self._gate.info

    # Running an operation. The halves of each pair say the same; only waiting differs.

    def _run(self, op: _Operation[R]) -> R:
        try:
            info = self._enter(op)
        except _NotAdmittedError:
            return op.failed(UNAVAILABLE)
        box = self._client.sandboxes.attach(info.id)
        doom = True
        try:
            step = next(op.steps)
            while True:
                try:
                    value = step(box)
                except CaissonError as error:
                    step = op.steps.throw(error)
                else:
                    step = op.steps.send(value)
        except BaseException as end:
            doom = self._dooms(op, end)
            return self._result(op, end, doom)
        finally:
            self._gate.leave(doom)

    async def _arun(self, op: _Operation[R]) -> R:
        try:
            info = await self._aenter(op)
        except _NotAdmittedError:
            return op.failed(UNAVAILABLE)
        box = self._async_client.sandboxes.attach(info.id)
        doom = True
        try:
            step = next(op.steps)
            while True:
                try:
                    value = await step(box)
                except CaissonError as error:
                    step = op.steps.throw(error)
                else:
                    step = op.steps.send(value)
        except BaseException as end:
            doom = self._dooms(op, end)
            return self._result(op, end, doom)
        finally:
            self._gate.leave(doom)

    def _dooms(self, op: _Operation[Any], end: BaseException) -> bool:
        """Whether the sandbox must not be used again after this end."""
        if isinstance(end, StopIteration):
            return False
        if isinstance(end, _DoomError):
            return True
        if isinstance(end, CaissonError):
            return end.code in _DEAD or (op.changes and not _refused(end))
        if isinstance(end, UnicodeEncodeError):
            return False  # it could not even be sent
        # The caller left: cancelled, interrupted.
        return op.changes and self._spec.after_unfinished == "dispose"

    def _result(self, op: _Operation[R], end: BaseException, doom: bool) -> R:
        """What the operation gives at this end; raises what is no end of an operation."""
        if isinstance(end, StopIteration):
            result: R = end.value
            return result
        if isinstance(end, _DoomError):
            doomed: R = end.result
            return doomed
        if isinstance(end, UnicodeEncodeError):
            log.warning("%s: text with half a surrogate pair cannot be sent", self._id)
            return op.failed(UNAVAILABLE)
        if not isinstance(end, CaissonError):
            raise end
        log.warning("%s: %s", self._id, end)
        known = _refused(end) or end.code in _DEAD
        sentence = UNAVAILABLE if known else op.unknown
        return op.failed(sentence + DISCARDED if doom else sentence)

    def _enter(self, op: _Operation[Any]) -> SandboxInfo:
        while True:
            turn = self._gate.enter()
            if isinstance(turn, SandboxInfo):
                return turn
            if turn is Turn.CLOSED:
                raise _NotAdmittedError
            if turn is Turn.MAKE:
                made: SandboxInfo | None = None
                try:
                    made = self._make(op)
                    return made
                finally:
                    self._gate.made(made)
            assert isinstance(turn, Future)
            try:
                turn.result(op.remaining())
            except TimeoutError:
                raise _NotAdmittedError from None

    async def _aenter(self, op: _Operation[Any]) -> SandboxInfo:
        while True:
            turn = self._gate.enter()
            if isinstance(turn, SandboxInfo):
                return turn
            if turn is Turn.CLOSED:
                raise _NotAdmittedError
            if turn is Turn.MAKE:
                made: SandboxInfo | None = None
                try:
                    made = await self._amake(op)
                    return made
                finally:
                    self._gate.made(made)
            assert isinstance(turn, Future)
            try:
                await asyncio.wait_for(asyncio.wrap_future(turn), op.remaining())
            except TimeoutError:
                raise _NotAdmittedError from None

    def _make(self, op: _Operation[Any]) -> SandboxInfo:
        box = self._client.sandbox(**self._body)
        try:
            box.acquire(timeout=op.remaining())
            if self._own_work_dir(box.info):
                box.files.mkdir(self._work_dir, parents=True)
        except CaissonError as error:
            log.warning("%s: no sandbox: %s", self._id, error)
            # Nobody else knows of what may have been made. No reply waits for its end.
            threading.Thread(target=box.close, name="caisson-dispose").start()
            raise _NotAdmittedError from error
        except BaseException:
            box.close()
            raise
        assert box.info is not None
        return box.info

    async def _amake(self, op: _Operation[Any]) -> SandboxInfo:
        box = self._async_client.sandbox(**self._body)
        try:
            await box.acquire(timeout=op.remaining())
            if self._own_work_dir(box.info):
                await box.files.mkdir(self._work_dir, parents=True)
        except CaissonError as error:
            log.warning("%s: no sandbox: %s", self._id, error)
            ending = asyncio.create_task(box.aclose())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise _NotAdmittedError from error
        except BaseException:
            await box.aclose()
            raise
        assert box.info is not None
        return box.info

    @property
    def _work_dir(self) -> str:
        return self._spec.work_dir or "/"

    def _added_work_dir(self) -> list[str]:
        """The working directory, where it is to be made writable."""
        there = (*_WRITABLE, *self._spec.writable_paths)
        below = any(f"{self._work_dir}/".startswith(f"{path}/") for path in there)
        return [] if below else [self._work_dir]

    def _own_work_dir(self, info: SandboxInfo | None) -> bool:
        """Whether the working directory is another one than the profile's, which exists."""
        return info is not None and info.spec.get("work_dir") != self._work_dir

    def _absolute(self, path: str) -> str:
        """The path from the root, without doubled slashes. `..` is left to the sandbox: what it
        means depends on links."""
        full = path if path.startswith("/") else f"{self._work_dir}/{path}"
        return re.sub(r"(/\.?)+(?=/|$)", "", re.sub(r"/{2,}", "/", full)) or "/"

    # The end.

    def close(self) -> bool:
        """Ends the sandbox, exactly the one that was made, when the calls in it are done (or
        after 10 seconds, which ends them). True when it is gone or was never made, False when
        that cannot be confirmed; closing again tries again. Nothing else can be done with this
        object afterwards."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        while (waiter := self._gate.start_close()) is not None:
            try:
                waiter.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                break
        info, confirmed = self._gate.finish_close()
        if info is not None and not self._client.sandboxes.dispose(info):
            self._gate.not_confirmed(info)
            return False
        if self._owns_client:
            self._client.close()
        return confirmed

    async def aclose(self) -> bool:
        """The same as `close`."""
        deadline = time.monotonic() + _CLOSE_SECONDS
        while (waiter := self._gate.start_close()) is not None:
            try:
                await asyncio.wait_for(
                    asyncio.wrap_future(waiter), max(0.0, deadline - time.monotonic())
                )
            except TimeoutError:
                break
        info, confirmed = self._gate.finish_close()
        if info is not None and not await self._async_client.sandboxes.dispose(info):
            self._gate.not_confirmed(info)
            return False
        await self._async_client.aclose()
        if self._owns_client:
            self._client.close()
        return confirmed

    def __enter__(self) -> CaissonSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> CaissonSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Commands.

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command in the working directory.

        `timeout` is in seconds and covers the making of the sandbox, too; 0 is no limit, None the
        specification's. `output` is stdout, then the lines of stderr with "[stderr] " and notes
        with "[note] " before them. The exit code is the command's own, or None: there is no
        made-up one.
        """
        return self._run(self._execute(command, timeout))

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,
    ) -> ExecuteResponse:
        """The same as `execute`; cancelling it ends the command."""
        return await self._arun(self._execute(command, timeout))

    def _execute(self, command: str, timeout: float | None) -> _Operation[ExecuteResponse]:
        seconds = self._spec.execute_timeout if timeout is None else timeout
        if seconds < 0:
            raise ValueError(f"timeout is {timeout}; it must be 0 (no limit) or more seconds")
        limit = self._spec.max_output_bytes
        deadline = time.monotonic() + (seconds or _UNLIMITED_SECONDS)

        def failed(sentence: str) -> ExecuteResponse:
            return ExecuteResponse(output=sentence, exit_code=None)

        def steps() -> Steps[ExecuteResponse]:
            notes: list[str] = []
            cwd = self._work_dir
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    return failed(UNAVAILABLE)

                def run(box: Any, cwd: str = cwd, left: float = left) -> Any:
                    return box.exec(
                        command,
                        cwd=cwd,
                        timeout=left if seconds else None,
                        output_limit_bytes=limit,
                    )

                try:
                    result: ExecResult = yield run
                    break
                except InvalidRequestError as error:
                    if "output_limit_bytes" not in error.detail:
                        raise
                    log.warning("%s: %s", self._id, error)
                    return failed(UNBOUNDED.format(limit=limit))
                except CaissonError as error:
                    if error.code != "invalid_cwd" or cwd == "/":
                        raise
                    notes.append(f"the working directory {cwd} cannot be entered; this ran in /")
                    cwd = "/"
            return self._response(result, seconds, notes)

        return _Operation(steps(), failed, changes=True, deadline=deadline)

    def _response(self, result: ExecResult, seconds: float, notes: list[str]) -> ExecuteResponse:
        ends: list[str] = []
        doomed = False
        match result.reason:
            case "exited" | "signaled" | "oom":
                if result.signal is not None:
                    why = ": out of memory" if result.reason == "oom" else ""
                    notes.append(f"ended by signal {result.signal}{why}")
                elif result.reason == "oom":
                    notes.append("out of memory")
            case "timeout":
                doomed = self._spec.after_unfinished == "dispose"
                ends.append(UNFINISHED.format(seconds=f"{seconds:g}") + (DISCARDED * doomed))
            case _:  # killed by somebody, lost: what it did is not known
                doomed = True
                ends.append(NO_RESULT + DISCARDED)
        if result.still_running > 0:
            notes.append(f"{result.still_running} of its processes still run")
        if result.truncated:
            ends.insert(0, OUTPUT_DROPPED.format(limit=self._spec.max_output_bytes))
        response = ExecuteResponse(
            output=_join(result, notes, ends),
            exit_code=result.code if not doomed and result.reason != "timeout" else None,
            truncated=result.truncated,
        )
        if doomed:
            raise _DoomError(response)
        return response

    # Files.

    def ls(self, path: str) -> LsResult:
        return self._run(self._ls(path))

    async def als(self, path: str) -> LsResult:
        return await self._arun(self._ls(path))

    def _ls(self, path: str) -> _Operation[LsResult]:
        full = self._absolute(path)

        def steps() -> Steps[LsResult]:
            found: list[FileInfo] = []
            after: str | None = None
            while True:

                def page(box: Any, after: str | None = after) -> Any:
                    return box.files.list(full, limit=_LIST_PAGE, after=after)

                try:
                    listing = yield page
                except (FileError, InvalidRequestError) as error:
                    code = "path_not_found" if error.code == "file_not_found" else error.code
                    return LsResult(error=f"Path '{path}': {code}")
                for entry in listing.entries:
                    found.append(_file_info(posixpath.join(full, entry.name), entry))
                if not listing.truncated or not listing.entries:
                    return LsResult(entries=found)
                after = listing.entries[-1].name

        return _Operation(steps(), lambda sentence: LsResult(error=sentence))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._run(self._read(file_path, offset, limit))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await self._arun(self._read(file_path, offset, limit))

    def _read(self, path: str, offset: int, limit: int) -> _Operation[ReadResult]:
        full = self._absolute(path)
        first = max(0, offset)
        is_media = posixpath.splitext(full)[1].lower() in _MEDIA

        def preview() -> Steps[ReadResult]:
            entry = yield lambda box: box.files.stat(full, follow=True)
            if entry.type == "file" and entry.size_bytes == 0:
                return ReadResult(file_data={"content": "", "encoding": "utf-8"})
            # One byte more than fits tells that it does not, whatever happened since.
            content = yield lambda box: box.files.read(full, length=_PREVIEW_BYTES + 1)
            if len(content) > _PREVIEW_BYTES:
                return ReadResult(
                    error=f"File '{path}': Binary file exceeds maximum preview size of "
                    f"{_PREVIEW_BYTES} bytes"
                )
            text = base64.b64encode(content).decode()
            return ReadResult(file_data={"content": text, "encoding": "base64"})

        def page() -> Steps[ReadResult]:
            asked = limit > 0
            lines = yield lambda box: box.files.lines(
                full,
                offset=first if asked else 0,
                limit=limit if asked else 1,
                max_bytes=_PREVIEW_BYTES,
            )
            if lines.end_line < lines.start_line:  # an empty file
                return ReadResult(file_data={"content": "", "encoding": "utf-8"})
            if not asked:
                nothing: ReadResult = ReadResult(
                    file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True
                )
                return nothing
            text = lines.text
            if lines.cut:
                text += f"\n{NOTE_PREFIX}line {lines.end_line} is longer than a page and was cut"
            return ReadResult(
                file_data={"content": text, "encoding": "utf-8"},
                total_lines=lines.total_lines,
                start_line=lines.start_line,
                end_line=lines.end_line,
                next_offset=None if lines.next_offset is None else lines.end_line,
            )

        def steps() -> Steps[ReadResult]:
            try:
                if is_media:
                    return (yield from preview())
                try:
                    return (yield from page())
                except FileError as error:
                    if error.code != "not_text":
                        raise
                return (yield from preview())
            except (FileError, InvalidRequestError) as error:
                if error.code == "offset_past_end":
                    total = re.search(r"\((\d+) lines\)", error.detail)
                    length = f" ({total[1]} lines)" if total else ""
                    return ReadResult(
                        error=f"File '{path}': Line offset {first} exceeds file length{length}"
                    )
                return ReadResult(error=f"File '{path}': {error.code}")

        return _Operation(steps(), lambda sentence: ReadResult(error=sentence))

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._run(self._write(file_path, content))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await self._arun(self._write(file_path, content))

    def _write(self, path: str, content: str) -> _Operation[WriteResult]:
        full = self._absolute(path)

        def steps() -> Steps[WriteResult]:
            try:
                yield lambda box: box.files.write(
                    full, content, parents=True, create_only=self._legacy
                )
            except (FileError, InvalidRequestError) as error:
                what = "already exists" if error.code == "file_exists" else error.code
                return WriteResult(error=f"File '{path}': {what}")
            return WriteResult(path=path)

        return _Operation(steps(), lambda sentence: WriteResult(error=sentence), changes=True)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        return self._run(self._edit(file_path, old_string, new_string, replace_all))

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        return await self._arun(self._edit(file_path, old_string, new_string, replace_all))

    def _edit(self, path: str, old: str, new: str, replace_all: bool) -> _Operation[EditResult]:
        full = self._absolute(path)
        words = {
            "file_not_found": "not found",
            "string_not_found": "the text to replace was not found",
            "multiple_occurrences": "the text to replace occurs multiple times; give more of its "
            "surroundings, or replace_all",
        }

        def steps() -> Steps[EditResult]:
            if not old:
                return EditResult(error=f"File '{path}': the text to replace is empty")
            try:
                edited = yield lambda box: box.files.edit(full, old, new, replace_all=replace_all)
            except (EditError, FileError, InvalidRequestError) as error:
                return EditResult(error=f"File '{path}': {words.get(error.code, error.code)}")
            return EditResult(path=path, occurrences=edited.count)

        return _Operation(steps(), lambda sentence: EditResult(error=sentence), changes=True)

    def delete(self, file_path: str) -> DeleteResult:
        return self._run(self._delete(file_path))

    async def adelete(self, file_path: str) -> DeleteResult:
        return await self._arun(self._delete(file_path))

    def _delete(self, path: str) -> _Operation[DeleteResult]:
        full = self._absolute(path)

        def steps() -> Steps[DeleteResult]:
            try:
                yield lambda box: box.files.remove(full, recursive=True)
            except (FileError, InvalidRequestError) as error:
                what = "not found" if error.code == "file_not_found" else error.code
                return DeleteResult(error=f"Path '{path}': {what}")
            return DeleteResult(path=path)

        return _Operation(steps(), lambda sentence: DeleteResult(error=sentence), changes=True)

    # Search.

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._run(self._glob(pattern, path))

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await self._arun(self._glob(pattern, path))

    def _glob(self, pattern: str, path: str | None) -> _Operation[GlobResult]:
        full = self._absolute(path or "/")

        # A bare pattern looks into dot directories, too, which `**` does not enter; but a leading
        # dot of a name itself is matched by a dot only.
        bare = not self._legacy and "/" not in pattern
        dots = pattern.startswith(".")
        mixed = "{." in pattern or ",." in pattern

        def search(hidden: bool) -> Steps[Any]:
            return (
                yield lambda box: box.search.glob(
                    pattern,
                    full,
                    bare_any_depth=not self._legacy,
                    directories=self._legacy,
                    hidden=hidden,
                )
            )

        def steps() -> Steps[GlobResult]:
            try:
                found = yield from search(hidden=bare)
                entries = found.matches
                if bare and not dots:
                    entries = [entry for entry in entries if not entry.name.startswith(".")]
                    if mixed:
                        entries += [
                            entry
                            for entry in (yield from search(hidden=False)).matches
                            if entry.name.startswith(".")
                        ]
                        entries.sort(key=lambda entry: entry.path.encode())
            except (FileError, SearchError, InvalidRequestError) as error:
                return GlobResult(error=f"Path '{full}': {_search_error(error)}")
            matches = []
            for entry in entries:
                if self._legacy:
                    matches.append(_file_info(posixpath.relpath(entry.path, full), entry))
                elif entry.type == "file":
                    matches.append(_file_info(entry.path, entry))
            return _glob_result(matches, found.truncated, found.unreadable > 0)

        return _Operation(steps(), lambda sentence: GlobResult(error=sentence))

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        return self._run(self._grep(pattern, path, glob, max_count))

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        return await self._arun(self._grep(pattern, path, glob, max_count))

    def _grep(
        self, pattern: str, path: str | None, glob: str | None, max_count: int | None
    ) -> _Operation[GrepResult]:
        full = self._absolute(path or ".")
        cap = _GREP_MATCHES if max_count is None else max(0, min(max_count, _GREP_MATCHES))

        def steps() -> Steps[GrepResult]:
            try:
                found = yield lambda box: box.search.grep(
                    pattern,
                    full,
                    glob=glob,
                    limit=max(1, cap),
                    max_line_bytes=_GREP_LINE_BYTES,
                )
            except (FileError, SearchError, InvalidRequestError) as error:
                if error.code == "file_not_found":
                    return GrepResult(matches=[])
                return GrepResult(error=f"Path '{full}': {_search_error(error)}")
            matches = [
                GrepMatch(path=match.path, line=match.line, text=match.text)
                for match in found.matches[:cap]
            ]
            truncated = found.truncated or len(found.matches) > cap
            return GrepResult(matches=matches, truncated=truncated)

        return _Operation(steps(), lambda sentence: GrepResult(error=sentence))

    # Many files.

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, with their directories; what became of each, in order."""
        return self._run(self._upload(files)) if files else []

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """The same as `upload_files`."""
        return await self._arun(self._upload(files)) if files else []

    def _upload(self, files: list[tuple[str, bytes]]) -> _Operation[list[FileUploadResponse]]:
        limits = self._spec.limits

        def all_failed(error: str) -> list[FileUploadResponse]:
            return [FileUploadResponse(path=path, error=error) for path, _ in files]

        def steps() -> Steps[list[FileUploadResponse]]:
            if len(files) > limits.max_files:
                return all_failed("too_many_files")
            answers = [FileUploadResponse(path=path) for path, _ in files]
            sent = []
            for at, (path, content) in enumerate(files):
                if not path.startswith("/"):
                    answers[at].error = "invalid_path"
                elif len(content) > limits.max_file_bytes:
                    answers[at].error = "file_too_large"
                else:
                    sent.append(at)
            if not sent:
                return answers
            try:
                results = yield lambda box: box.files.upload(
                    [files[at] for at in sent],
                    parents=True,
                    max_file_bytes=limits.max_file_bytes,
                    max_total_bytes=limits.max_total_bytes,
                    max_files=limits.max_files,
                )
            except (FileError, InvalidRequestError) as error:  # the batch as a whole
                return all_failed(error.code)
            for at, result in zip(sent, results, strict=True):
                answers[at].error = _transfer_error(result.code)
            return answers

        return _Operation(steps(), all_failed, changes=True, unknown=UPLOAD_UNFINISHED)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files; what became of each, in order."""
        return self._run(self._download(paths)) if paths else []

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The same as `download_files`."""
        return await self._arun(self._download(paths)) if paths else []

    def _download(self, paths: list[str]) -> _Operation[list[FileDownloadResponse]]:
        limits = self._spec.limits

        def all_failed(error: str) -> list[FileDownloadResponse]:
            return [FileDownloadResponse(path=path, error=error) for path in paths]

        def steps() -> Steps[list[FileDownloadResponse]]:
            if len(paths) > limits.max_files:
                return all_failed("too_many_files")
            answers = [FileDownloadResponse(path=path) for path in paths]
            sent = [at for at, path in enumerate(paths) if path.startswith("/")]
            for at in set(range(len(paths))) - set(sent):
                answers[at].error = "invalid_path"
            if not sent:
                return answers
            try:
                results = yield lambda box: box.files.download(
                    [paths[at] for at in sent],
                    max_file_bytes=limits.max_file_bytes,
                    max_total_bytes=limits.max_total_bytes,
                    max_files=limits.max_files,
                )
            except (FileError, InvalidRequestError) as error:
                return all_failed(error.code)
            for at, result in zip(sent, results, strict=True):
                answers[at].content = result.content
                answers[at].error = _transfer_error(result.code)
            return answers

        return _Operation(steps(), all_failed, unknown=DOWNLOAD_UNFINISHED)


def _refused(error: CaissonError) -> bool:
    """Whether the error says that nothing was done."""
    if isinstance(error, ConnectionFailedError):
        return error.code == "unavailable"
    certain = (
        AccessDeniedError,
        CommandError,
        ConflictError,
        FileError,
        InvalidRequestError,
        SandboxRefusedError,
        SearchError,
        TryLaterError,
    )
    if isinstance(error, certain):
        return error.code != "deadline_exceeded"
    return error.code in _REFUSALS


def _join(result: ExecResult, notes: list[str], ends: list[str]) -> str:
    """One text of both outputs, the notes, and the sentences about the end."""
    said = [STDERR_PREFIX + line for line in result.stderr.splitlines()]
    said += [NOTE_PREFIX + note for note in notes]
    said += ends
    if not said:
        return result.stdout or NO_OUTPUT
    if not result.stdout and not result.stderr:
        said.insert(0, NO_OUTPUT)
    between = "\n" if result.stdout and not result.stdout.endswith("\n") else ""
    return result.stdout + between + "\n".join(said)


def _file_info(path: str, entry: FileEntry) -> FileInfo:
    info = FileInfo(path=path)
    if entry.type is not None:
        info["is_dir"] = entry.is_dir
    if entry.size_bytes is not None:
        info["size"] = entry.size_bytes
    if entry.modified_at_ms is not None:
        when = datetime.fromtimestamp(entry.modified_at_ms / 1000, UTC)
        info["modified_at"] = when.isoformat()
    return info


def _search_error(error: CaissonError) -> str:
    if error.code == "file_not_found":
        return "path_not_found"
    # What is wrong with a pattern is the model's own business.
    return f"{error.code}: {error.detail}" if isinstance(error, SearchError) else error.code


def _glob_result(matches: list[FileInfo], limited: bool, unreadable: bool) -> GlobResult:
    result = GlobResult(matches=matches, truncated=limited or unreadable)
    # Newer versions of Deep Agents want to know why.
    if result.truncated and any(one.name == "truncation_reason" for one in fields(GlobResult)):
        result.truncation_reason = "budget" if limited else "unreadable"
    return result


def _transfer_error(code: str | None) -> str | None:
    return None if code is None else _TRANSFER_ERRORS.get(code, code)
