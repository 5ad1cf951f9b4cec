"""The async client.

`_sync.py` is made from this file by `tools/unasync.py`; change this one.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, TypeVar

import httpx

from . import _calls
from ._http import CLOSE_SECONDS, Call, EventParser, ServerSentEvent, Settings
from ._transport import AsyncLock, AsyncTransport
from .errors import CaissonError, ConnectionFailedError, SandboxGoneError
from .types import (
    RUN_OVER,
    CopiedFiles,
    Definition,
    DownloadedFile,
    EditedFile,
    Event,
    EventPage,
    ExecEvent,
    ExecOutput,
    ExecResult,
    ExecStarted,
    ExecState,
    Explanation,
    FileEntry,
    GlobResult,
    GrepResult,
    Lines,
    Listing,
    Page,
    Run,
    SandboxInfo,
    Session,
    Submitted,
    UploadedFile,
    WrittenFile,
)

T = TypeVar("T")
Root = Literal["sandbox", "work_dir"]
OnOutput = Callable[[str], None]
# Classes with a method `list` cannot name the type.
Uploads = list[UploadedFile]
Downloads = list[DownloadedFile]
ExecStates = list[ExecState]

_RECONNECTS = 5
_RECONNECT_SECONDS = 0.5
_SETTLE_TRIES = 10
_SETTLE_SECONDS = 0.3


class AsyncClient:
    """A Caisson server, for asyncio.

    `base_url` is by default the environment's CAISSON_URL, else http://127.0.0.1:8080. `scope`
    separates tenants: what belongs to another scope does not exist. `timeout` is how many seconds
    the server may be silent in a call; commands and streams have their own.

    A client may be used in several event loops; each gets its own connections.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        scope: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings.make(base_url, scope, headers, timeout)
        self._transport = AsyncTransport(self.settings)
        self.sandboxes = AsyncSandboxes(self._transport)
        self.agents = AsyncDefinitions(self._transport, "agents")
        self.providers = AsyncDefinitions(self._transport, "providers")
        self.sessions = AsyncSessions(self._transport)
        self.runs = AsyncRuns(self._transport)

    def sandbox(
        self,
        *,
        profile: str | None = None,
        session_id: str | None = None,
        network: str | None = None,
        ttl_ms: int | None = None,
        env: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        writable_paths: Sequence[str] | None = None,
    ) -> AsyncSandbox:
        """A sandbox that is made when it is entered or first used, and ended at the exit."""
        spec = _calls.spec_body(
            profile, session_id, network, ttl_ms, env, resources, writable_paths
        )
        return AsyncSandbox(self._transport, spec=spec)

    async def aclose(self) -> None:
        """Closes the connections of this process and event loop. Sandboxes live on."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncSandboxes:
    """`client.sandboxes`"""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        *,
        profile: str | None = None,
        session_id: str | None = None,
        network: str | None = None,
        ttl_ms: int | None = None,
        env: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        writable_paths: Sequence[str] | None = None,
    ) -> AsyncSandbox:
        """Makes a sandbox. It lives until `aclose()`, `delete()` or its time to live."""
        spec = _calls.spec_body(
            profile, session_id, network, ttl_ms, env, resources, writable_paths
        )
        box = AsyncSandbox(self._transport, spec=spec)
        await box.acquire()
        return box

    async def explain(
        self,
        *,
        profile: str | None = None,
        session_id: str | None = None,
        network: str | None = None,
        ttl_ms: int | None = None,
        env: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        writable_paths: Sequence[str] | None = None,
    ) -> Explanation:
        """Whether `create` would make this sandbox; makes nothing."""
        spec = _calls.spec_body(
            profile, session_id, network, ttl_ms, env, resources, writable_paths
        )
        return await self._transport.run(_calls.explain_sandbox(spec))

    async def get(self, sandbox_id: str) -> SandboxInfo:
        return await self._transport.run(_calls.get_sandbox(sandbox_id))

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[SandboxInfo]:
        """Also those that are gone."""
        return await self._transport.run(_calls.list_sandboxes(limit, cursor))

    async def delete(self, sandbox_id: str, *, generation: int | None = None) -> SandboxInfo:
        """Ends a sandbox; the answer is the receipt, again and again. With `generation` only
        that one: `PreconditionFailedError` when it has another."""
        return await self._transport.run(_calls.delete_sandbox(sandbox_id, generation))

    async def dispose(self, info: SandboxInfo) -> bool:
        """Ends exactly the sandbox that was described so: whether it is gone now."""
        try:
            return await _end(self._transport, info)
        except CaissonError:
            return False

    def attach(self, sandbox_id: str) -> AsyncSandbox:
        """A handle of a sandbox that exists. Closing the handle does not end it."""
        return AsyncSandbox(self._transport, attached=sandbox_id)


class AsyncSandbox:
    """A sandbox: commands, `files` and `search`.

    It is made when it is entered (`async with`), at `acquire()` or at the first call.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        *,
        spec: Mapping[str, Any] | None = None,
        attached: str | None = None,
    ) -> None:
        self._transport = transport
        self._spec = spec
        self._attached = attached
        self._info: SandboxInfo | None = None
        self._lock = AsyncLock()
        self._key = str(uuid.uuid4())
        self._unsettled = False  # a create was sent, and its answer did not come
        self._owner = 0  # the process that made the sandbox
        self._closed = False
        self._ended = False  # confirmed
        self.execs = AsyncExecs(self)
        self.files = AsyncFiles(self)
        self.search = AsyncSearch(self)

    @property
    def info(self) -> SandboxInfo | None:
        """The sandbox as it was acquired; None before."""
        return self._info

    @property
    def id(self) -> str | None:
        """Its id; None before it is acquired."""
        if self._attached is not None:
            return self._attached
        return self._info.id if self._info is not None else None

    async def acquire(self, *, timeout: float | None = None) -> str:
        """Makes the sandbox unless that is done; its id. `timeout` is in seconds."""
        if self._closed:
            raise SandboxGoneError("sandbox_lost", "this sandbox was closed; make a new one")
        if self._attached is not None:
            return self._attached
        if self._info is not None:
            return self._info.id
        async with self._lock:
            if self._info is None:
                # With the same key a second try gets the first one's sandbox.
                self._unsettled, self._owner = True, os.getpid()
                try:
                    self._info = await self._transport.run(
                        _calls.create_sandbox(self._spec or {}, self._creation_key(), timeout)
                    )
                except CaissonError as error:
                    # A refusal is an answer, and what was not sent has no effect.
                    lost = isinstance(error, ConnectionFailedError)
                    self._unsettled = lost and error.code != "unavailable"
                    raise
                self._unsettled = False
            return self._info.id

    def _creation_key(self) -> str | None:
        # A session has one sandbox, with or without a key.
        return None if "session_id" in (self._spec or {}) else self._key

    async def run(self, make_call: Callable[[str], Call[T]]) -> T:
        """Makes the call that is made from this sandbox's id."""
        return await self._transport.run(make_call(await self.acquire()))

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        output_limit_bytes: int | None = None,
        umask: str | None = None,
        login: bool = False,
        keep_bytes: int | None = None,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
    ) -> ExecResult:
        """Runs a command, text for /bin/sh or a list as it is, and waits for its end.

        Its end is in the result, whatever it is; an exception means that it was not started or
        that its end is not known. Output beyond `output_limit_bytes` (65536, at most 4 MiB) is
        counted and dropped. With `on_stdout` or `on_stderr` output goes there as it comes, and is
        not in the result. `keep_bytes` of it are kept on the sandbox's disk: `execs.get(result.id)`
        reads them. Cancelling this call ends the command.
        """
        if on_stdout is None and on_stderr is None:
            return await self.run(
                lambda box: _calls.start_exec(
                    box,
                    command,
                    cwd,
                    env,
                    stdin,
                    timeout,
                    output_limit_bytes,
                    umask,
                    login,
                    keep_bytes,
                    False,
                )
            )
        stream = self.exec_stream(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            output_limit_bytes=output_limit_bytes,
            umask=umask,
            login=login,
            keep_bytes=keep_bytes,
        )
        async with stream:
            async for event in stream:
                if isinstance(event, ExecOutput):
                    callback = on_stdout if event.stream == "stdout" else on_stderr
                    if callback is not None:
                        callback(event.text)
            return stream.result

    def exec_stream(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        timeout: float | None = None,
        output_limit_bytes: int | None = None,
        umask: str | None = None,
        login: bool = False,
        keep_bytes: int | None = None,
    ) -> AsyncExecStream:
        """Runs a command and yields its events: use it as `async with` and iterate.

        Leaving before the end ends the command. A slow reader slows it.
        """
        return AsyncExecStream(
            self,
            lambda box: _calls.start_exec(
                box,
                command,
                cwd,
                env,
                stdin,
                timeout,
                output_limit_bytes,
                umask,
                login,
                keep_bytes,
                True,
            ),
        )

    async def aclose(self) -> bool:
        """Ends the sandbox: exactly the one that this handle acquired.

        True when it is gone, or was never made; False when that cannot be confirmed (the
        server's time to live then ends it). A handle that is attached, or that a parent process
        acquired, owns nothing and ends nothing.
        """
        if self._attached is not None:
            return True
        self._closed = True
        if self._owner != os.getpid():
            return True
        try:
            if self._unsettled:
                return await self._settle()
            if self._info is not None and not self._ended:
                self._ended = await _end(self._transport, self._info)
            return self._info is None or self._ended
        except CaissonError:
            return False

    async def _settle(self) -> bool:
        """Ends what an unanswered create may have made: its key tells which."""
        for _ in range(_SETTLE_TRIES):
            made = await self._transport.run(
                _calls.create_sandbox(self._spec or {}, self._creation_key())
            )
            if made.gone or (made.status == "ready" and await _end(self._transport, made)):
                self._unsettled, self._info = False, None
                return True
            await asyncio.sleep(_SETTLE_SECONDS)
        return False

    async def delete(self) -> SandboxInfo:
        """Ends the sandbox, attached ones as well; the receipt. Raises when that fails."""
        receipt = await self.run(lambda box: _calls.delete_sandbox(box, None))
        self._closed = True
        return receipt

    async def __aenter__(self) -> AsyncSandbox:
        try:
            await self.acquire()
        except BaseException:
            # There will be no __aexit__.
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncExecStream:
    """The events of one command; `exec_stream` makes it."""

    def __init__(self, box: AsyncSandbox, make_call: Callable[[str], Call[ExecResult]]) -> None:
        self._box = box
        self._make_call = make_call
        self._stack = AsyncExitStack()
        self._events: AsyncIterator[ServerSentEvent] | None = None
        self._result: ExecResult | None = None
        self._id = ""

    @property
    def result(self) -> ExecResult:
        """How the command ended; known after the last event."""
        if self._result is None:
            raise RuntimeError("the command has not ended: read the stream to its end first")
        return self._result

    async def __aenter__(self) -> AsyncExecStream:
        call = self._make_call(await self._box.acquire())
        response = await self._stack.enter_async_context(self._box._transport.stream(call))
        self._events = _server_sent_events(response)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing the connection is what ends a command that still runs.
        await self._stack.aclose()

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> ExecEvent:
        if self._events is None:
            raise RuntimeError("use `async with box.exec_stream(…) as stream`")
        if self._result is not None:
            raise StopAsyncIteration
        try:
            async for sent in self._events:
                event = _calls.exec_event(sent)
                if isinstance(event, ExecStarted):
                    self._id = event.id
                if isinstance(event, ExecResult):
                    self._result = event = replace(event, id=self._id)
                if event is not None:
                    return event
        except httpx.HTTPError as error:
            raise _calls.no_result() from error
        raise _calls.no_result()


class AsyncExec:
    """A command that lives on without its caller, by its id."""

    def __init__(self, box: AsyncSandbox, exec_id: str) -> None:
        self._box = box
        self.id = exec_id

    async def state(self) -> ExecState:
        return await self._box.run(lambda box: _calls.get_exec(box, self.id))

    def follow(self, after: int = 0) -> AsyncExecStream:
        """Its output from a byte offset on, and its end: `async with`, and iterate. Leaving it
        changes nothing. What came earlier than `state().first_kept_offset` is a gap."""
        return AsyncExecStream(self._box, lambda box: _calls.follow_exec(box, self.id, after))

    async def wait(self) -> ExecResult:
        """Waits for its end; the result is without output."""
        async with self.follow((await self.state()).offset) as stream:
            async for _ in stream:
                pass
            return stream.result

    async def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Writes to the input of an interactive command; returns when all is in its pipe. `eof`
        closes it behind."""
        await self._box.run(lambda box: _calls.write_exec(box, self.id, data, eof))

    async def signal(self, signal: str, *, tree: bool = False) -> None:
        """TERM, KILL, …, to the command's group or to all that it started."""
        await self._box.run(lambda box: _calls.signal_exec(box, self.id, signal, tree))

    async def resize(self, rows: int, cols: int) -> None:
        """Of its terminal."""
        await self._box.run(lambda box: _calls.resize_exec(box, self.id, rows, cols))

    async def output(
        self,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        """What `keep_bytes` kept, from a byte on; at most `limit` bytes (65536)."""
        return await self._box.run(
            lambda box: _calls.exec_output(box, self.id, stream, offset, limit)
        )

    async def delete(self) -> None:
        """Ends it with all that it started, and forgets it."""
        await self._box.run(lambda box: _calls.delete_exec(box, self.id))


class AsyncExecs:
    """Commands that live on without their caller; `sandbox.execs`."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def start(
        self,
        command: str | Sequence[str],
        *,
        id: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        interactive: bool = False,
        pty: tuple[int, int] | None = None,
        umask: str | None = None,
        login: bool = False,
        keep_bytes: int | None = None,
    ) -> AsyncExec:
        """Starts a command and does not wait for it. `id` is the caller's own, unique in the
        sandbox; `interactive` keeps its input open; `pty` is a terminal of rows and columns."""
        started = await self._box.run(
            lambda box: _calls.start_background(
                box,
                command,
                id,
                cwd,
                env,
                timeout,
                interactive,
                pty,
                umask,
                login,
                keep_bytes,
            )
        )
        return AsyncExec(self._box, started.id)

    def get(self, exec_id: str) -> AsyncExec:
        """A handle of a command that was started before; asks nobody yet."""
        return AsyncExec(self._box, exec_id)

    async def list(self) -> ExecStates:
        """Those that run, and those that ended and are remembered."""
        return await self._box.run(_calls.list_execs)


class AsyncFiles:
    """`box.files`. Paths are absolute, or relative to the working directory.

    `root="work_dir"` confines a call to what is below the working directory.
    """

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def read(
        self,
        path: str,
        *,
        start: int | None = None,
        length: int | None = None,
        root: Root | None = None,
    ) -> bytes:
        """The file's bytes, or `length` of them from `start`."""
        return await self._box.run(lambda box: _calls.read_file(box, path, start, length, root))

    async def read_text(self, path: str, *, root: Root | None = None) -> str:
        return (await self.read(path, root=root)).decode()

    async def lines(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
        max_line_bytes: int | None = None,
        newline: Literal["keep"] | None = None,
        root: Root | None = None,
    ) -> Lines:
        """A window of a text file, from the 0-based line `offset`; 2000 lines, 512,000 bytes."""
        return await self._box.run(
            lambda box: _calls.read_lines(
                box, path, offset, limit, max_bytes, max_line_bytes, newline, root
            )
        )

    async def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes] | AsyncIterable[bytes],
        *,
        mode: str | None = None,
        create_only: bool = False,
        parents: bool = False,
        if_match: str | None = None,
        root: Root | None = None,
    ) -> WrittenFile:
        """Creates or replaces a file; readers see the old one or the new one.

        `mode` is like "0644". `create_only` refuses a file that exists, `if_match` one whose
        content has another SHA-256. `parents` makes missing directories.
        """
        return await self._box.run(
            lambda box: _calls.write_file(
                box, path, content, mode, create_only, parents, if_match, root
            )
        )

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        expected_count: int | None = None,
        if_match: str | None = None,
        newline: Literal["exact", "adapt"] | None = None,
        dry_run: bool = False,
        root: Root | None = None,
    ) -> EditedFile:
        """Replaces a literal text, which must occur once unless `replace_all` or
        `expected_count` say otherwise."""
        return await self._box.run(
            lambda box: _calls.edit_file(
                box,
                path,
                old,
                new,
                replace_all,
                expected_count,
                if_match,
                newline,
                dry_run,
                root,
            )
        )

    async def stat(self, path: str, *, follow: bool = False, root: Root | None = None) -> FileEntry:
        return await self._box.run(lambda box: _calls.stat_file(box, path, follow, root))

    async def list(
        self,
        path: str,
        *,
        limit: int | None = None,
        after: str | None = None,
        root: Root | None = None,
    ) -> Listing:
        """The entries of a directory (1000), sorted by name, from the one behind `after`."""
        return await self._box.run(lambda box: _calls.list_files(box, path, limit, after, root))

    async def mkdir(
        self,
        path: str,
        *,
        parents: bool = False,
        mode: str | None = None,
        root: Root | None = None,
    ) -> FileEntry:
        return await self._box.run(
            lambda box: _calls.make_directory(box, path, parents, mode, root)
        )

    async def move(
        self, source: str, target: str, *, overwrite: bool = False, root: Root | None = None
    ) -> FileEntry:
        return await self._box.run(
            lambda box: _calls.move_file(box, source, target, overwrite, root)
        )

    async def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        root: Root | None = None,
    ) -> CopiedFiles:
        """Copies a file, or with `recursive` a directory to where nothing is."""
        return await self._box.run(
            lambda box: _calls.copy_file(box, source, target, overwrite, recursive, root)
        )

    async def remove(
        self,
        path: str,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        root: Root | None = None,
    ) -> bool:
        """Whether there was something. A link is removed, not followed."""
        return await self._box.run(
            lambda box: _calls.remove_file(box, path, recursive, missing_ok, root)
        )

    async def upload(
        self,
        files: Sequence[tuple[str, str | bytes]],
        *,
        mode: str | None = None,
        parents: bool = True,
        max_file_bytes: int | None = None,
        max_total_bytes: int | None = None,
        max_files: int | None = None,
        root: Root | None = None,
    ) -> Uploads:
        """Writes many files in one call: what became of each, in order.

        A batch with too many files is refused whole (`FileTooLargeError`); a file over its limit
        or over what is left of the total is refused alone.
        """
        return await self._box.run(
            lambda box: _calls.upload_files(
                box,
                files,
                mode,
                parents,
                max_file_bytes,
                max_total_bytes,
                max_files,
                root,
            )
        )

    async def download(
        self,
        paths: Sequence[str],
        *,
        max_file_bytes: int | None = None,
        max_total_bytes: int | None = None,
        max_files: int | None = None,
        root: Root | None = None,
    ) -> Downloads:
        """Reads many files in one call: what became of each, in order, by the rules of `upload`.
        A file over a limit is refused, never cut."""
        return await self._box.run(
            lambda box: _calls.download_files(
                box, paths, max_file_bytes, max_total_bytes, max_files, root
            )
        )


class AsyncSearch:
    """`box.search`"""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def glob(
        self,
        pattern: str,
        path: str = ".",
        *,
        limit: int | None = None,
        bare_any_depth: bool = True,
        directories: bool = False,
        hidden: bool = False,
        root: Root | None = None,
    ) -> GlobResult:
        """Files by pattern: `*`, `?`, `[abc]`, `{a,b}`, `**`. Without a slash in it the pattern
        is for base names, at any depth unless `bare_any_depth` is false."""
        return await self._box.run(
            lambda box: _calls.glob(
                box, pattern, path, limit, bare_any_depth, directories, hidden, root
            )
        )

    async def grep(
        self,
        pattern: str,
        path: str = ".",
        *,
        glob: str | None = None,
        ignore_case: bool = False,
        limit: int | None = None,
        limit_per_file: int | None = None,
        max_line_bytes: int | None = None,
        hidden: bool = True,
        root: Root | None = None,
    ) -> GrepResult:
        """Lines by literal text."""
        return await self._box.run(
            lambda box: _calls.grep(
                box,
                pattern,
                path,
                glob,
                ignore_case,
                limit,
                limit_per_file,
                max_line_bytes,
                hidden,
                root,
            )
        )


class AsyncDefinitions:
    """`client.agents` and `client.providers`: named definitions with revisions."""

    def __init__(self, transport: AsyncTransport, kind: str) -> None:
        self._transport = transport
        self._kind = kind

    async def create(self, name: str, **fields: Any) -> Definition:
        return await self._transport.run(_calls.create_definition(self._kind, name, fields))

    async def put(self, name: str, *, revision: int | None = None, **fields: Any) -> Definition:
        """Creates it, or replaces exactly the given revision."""
        return await self._transport.run(_calls.put_definition(self._kind, name, fields, revision))

    async def get(self, name: str) -> Definition:
        return await self._transport.run(_calls.get_definition(self._kind, name))

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Definition]:
        return await self._transport.run(_calls.list_definitions(self._kind, limit, cursor))

    async def delete(self, name: str, *, revision: int) -> None:
        await self._transport.run(_calls.delete_definition(self._kind, name, revision))


class AsyncSessions:
    """`client.sessions`: conversations with agents, and their logs."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        agent: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        return await self._transport.run(
            _calls.create_session(agent, title, metadata, idempotency_key)
        )

    async def get(self, session_id: str) -> Session:
        return await self._transport.run(_calls.get_session(session_id))

    async def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Session]:
        return await self._transport.run(_calls.list_sessions(limit, cursor))

    async def send(
        self,
        session_id: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        multitask: Literal["reject", "enqueue", "interrupt"] | None = None,
        idempotency_key: str | None = None,
    ) -> Submitted:
        """Sends a message, which starts a run; does not wait for it."""
        parts = content if isinstance(content, str) else list(content)
        return await self._transport.run(
            _calls.send_message(session_id, parts, multitask, idempotency_key)
        )

    async def ask(
        self,
        session_id: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        visibility: Literal["end_user", "builder"] | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncIterator[Event]:
        """Sends a message and yields the events of its run until that is over.

        Leaving the iteration stops nothing: the run goes on in the server.
        """
        submitted = await self.send(session_id, content, idempotency_key=idempotency_key)
        run = submitted.run
        async for event in self.stream(
            session_id, after=run.first_seq - 1, until_end_of=run.id, visibility=visibility
        ):
            yield event

    async def stream(
        self,
        session_id: str,
        *,
        after: int = 0,
        until_end_of: str | None = None,
        visibility: Literal["end_user", "builder"] | None = None,
    ) -> AsyncIterator[Event]:
        """The log behind the event number `after`, and what comes.

        A connection that breaks is made again, behind the last event that was seen, so nothing
        is missing and nothing comes twice. With `until_end_of`, a run, it ends with that.
        """
        seen = after
        failures = 0
        while True:
            call = _calls.stream_events(session_id, seen, until_end_of, visibility)
            broken: CaissonError | None = None
            try:
                async with self._transport.stream(call) as response:
                    async for sent in _server_sent_events(response):
                        event = _calls.log_event(sent)
                        seen, failures = event.seq, 0
                        yield event
                        if _ends(event, until_end_of):
                            return
            except ConnectionFailedError as error:
                broken = error
            if broken is None and until_end_of is not None:
                # The server ends the stream with the run, or when it stops itself.
                try:
                    if (await self._transport.run(_calls.get_run(until_end_of))).over:
                        return
                except ConnectionFailedError as error:
                    broken = error
            failures += 1
            if failures > _RECONNECTS:
                raise broken or ConnectionFailedError(
                    "connection_lost", "the server ends the stream again and again"
                )
            await asyncio.sleep(_RECONNECT_SECONDS * failures)

    async def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        visibility: Literal["end_user", "builder"] | None = None,
        run: str | None = None,
    ) -> EventPage:
        """A page of the log; `last_seq` is the next `after`."""
        return await self._transport.run(
            _calls.read_events(session_id, after, limit, visibility, run)
        )

    async def runs(
        self, session_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Run]:
        return await self._transport.run(_calls.list_runs(session_id, limit, cursor))


class AsyncRuns:
    """`client.runs`"""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self, run_id: str) -> Run:
        return await self._transport.run(_calls.get_run(run_id))

    async def cancel(self, run_id: str) -> Run:
        """Asks for the end of a run, its model call and its command; does not wait for it."""
        return await self._transport.run(_calls.cancel_run(run_id))


async def _end(transport: AsyncTransport, info: SandboxInfo) -> bool:
    try:
        return (await transport.run(_calls.delete_sandbox(info.id, info.generation))).gone
    except CaissonError as error:
        if error.code != "precondition_failed":
            raise
    # Its status has changed since: gone already, or never to be used again. Ids are not used
    # twice, so what has this id is what was acquired.
    deadline = time.monotonic() + CLOSE_SECONDS
    while True:
        now = await transport.run(_calls.get_sandbox(info.id))
        if now.status == "unclean":
            now = await transport.run(_calls.delete_sandbox(now.id, now.generation))
        # Somebody else may be ending it at this moment.
        if now.status != "releasing" or time.monotonic() >= deadline:
            return now.gone
        await asyncio.sleep(_SETTLE_SECONDS)


def _ends(event: Event, run: str | None) -> bool:
    return (
        run is not None
        and event.run_id == run
        and event.type == "run.state"
        and event.data.get("to_status") in RUN_OVER
    )


async def _server_sent_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    parser = EventParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event
