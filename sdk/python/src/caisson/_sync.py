"""The client that blocks.

Made from _async.py by tools/unasync.py; change that one.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, TypeVar

import httpx

from . import _calls
from ._http import CLOSE_SECONDS, Call, EventParser, ServerSentEvent, Settings
from ._transport import SyncLock, SyncTransport
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


class Client:
    """A Caisson server.

    `base_url` is by default the environment's CAISSON_URL, else http://127.0.0.1:8080. `scope`
    separates tenants: what belongs to another scope does not exist. `timeout` is how many seconds
    the server may be silent in a call; commands and streams have their own.

    A client may be used by several threads, inside a running event loop (which it blocks), and
    after a fork: the child makes its own connections.
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
        self._transport = SyncTransport(self.settings)
        self.sandboxes = Sandboxes(self._transport)
        self.agents = Definitions(self._transport, "agents")
        self.providers = Definitions(self._transport, "providers")
        self.sessions = Sessions(self._transport)
        self.runs = Runs(self._transport)

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
    ) -> Sandbox:
        """A sandbox that is made when it is entered or first used, and ended at the exit."""
        spec = _calls.spec_body(
            profile, session_id, network, ttl_ms, env, resources, writable_paths
        )
        return Sandbox(self._transport, spec=spec)

    def close(self) -> None:
        """Closes the connections of this process. Sandboxes live on."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sandboxes:
    """`client.sandboxes`"""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def create(
        self,
        *,
        profile: str | None = None,
        session_id: str | None = None,
        network: str | None = None,
        ttl_ms: int | None = None,
        env: Mapping[str, str] | None = None,
        resources: Mapping[str, Any] | None = None,
        writable_paths: Sequence[str] | None = None,
    ) -> Sandbox:
        """Makes a sandbox. It lives until `close()`, `delete()` or its time to live."""
        spec = _calls.spec_body(
            profile, session_id, network, ttl_ms, env, resources, writable_paths
        )
        box = Sandbox(self._transport, spec=spec)
        box.acquire()
        return box

    def explain(
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
        return self._transport.run(_calls.explain_sandbox(spec))

    def get(self, sandbox_id: str) -> SandboxInfo:
        return self._transport.run(_calls.get_sandbox(sandbox_id))

    def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[SandboxInfo]:
        """Also those that are gone."""
        return self._transport.run(_calls.list_sandboxes(limit, cursor))

    def delete(self, sandbox_id: str, *, generation: int | None = None) -> SandboxInfo:
        """Ends a sandbox; the answer is the receipt, again and again. With `generation` only
        that one: `PreconditionFailedError` when it has another."""
        return self._transport.run(_calls.delete_sandbox(sandbox_id, generation))

    def dispose(self, info: SandboxInfo) -> bool:
        """Ends exactly the sandbox that was described so: whether it is gone now."""
        try:
            return _end(self._transport, info)
        except CaissonError:
            return False

    def attach(self, sandbox_id: str) -> Sandbox:
        """A handle of a sandbox that exists. Closing the handle does not end it."""
        return Sandbox(self._transport, attached=sandbox_id)


class Sandbox:
    """A sandbox: commands, `files` and `search`.

    It is made when it is entered (`with`), at `acquire()` or at the first call.
    """

    def __init__(
        self,
        transport: SyncTransport,
        *,
        spec: Mapping[str, Any] | None = None,
        attached: str | None = None,
    ) -> None:
        self._transport = transport
        self._spec = spec
        self._attached = attached
        self._info: SandboxInfo | None = None
        self._lock = SyncLock()
        self._key = str(uuid.uuid4())
        self._unsettled = False  # a create was sent, and its answer did not come
        self._owner = 0  # the process that made the sandbox
        self._closed = False
        self._ended = False  # confirmed
        self.execs = Execs(self)
        self.files = Files(self)
        self.search = Search(self)

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

    def acquire(self, *, timeout: float | None = None) -> str:
        """Makes the sandbox unless that is done; its id. `timeout` is in seconds."""
        if self._closed:
            raise SandboxGoneError("sandbox_lost", "this sandbox was closed; make a new one")
        if self._attached is not None:
            return self._attached
        if self._info is not None:
            return self._info.id
        with self._lock:
            if self._info is None:
                # With the same key a second try gets the first one's sandbox.
                self._unsettled, self._owner = True, os.getpid()
                try:
                    self._info = self._transport.run(
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

    def run(self, make_call: Callable[[str], Call[T]]) -> T:
        """Makes the call that is made from this sandbox's id."""
        return self._transport.run(make_call(self.acquire()))

    def exec(
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
        reads them. An exception in here ends the command.
        """
        if on_stdout is None and on_stderr is None:
            return self.run(
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
        with stream:
            for event in stream:
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
    ) -> ExecStream:
        """Runs a command and yields its events: use it as `with` and iterate.

        Leaving before the end ends the command. A slow reader slows it.
        """
        return ExecStream(
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

    def close(self) -> bool:
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
                return self._settle()
            if self._info is not None and not self._ended:
                self._ended = _end(self._transport, self._info)
            return self._info is None or self._ended
        except CaissonError:
            return False

    def _settle(self) -> bool:
        """Ends what an unanswered create may have made: its key tells which."""
        for _ in range(_SETTLE_TRIES):
            made = self._transport.run(
                _calls.create_sandbox(self._spec or {}, self._creation_key())
            )
            if made.gone or (made.status == "ready" and _end(self._transport, made)):
                self._unsettled, self._info = False, None
                return True
            time.sleep(_SETTLE_SECONDS)
        return False

    def delete(self) -> SandboxInfo:
        """Ends the sandbox, attached ones as well; the receipt. Raises when that fails."""
        receipt = self.run(lambda box: _calls.delete_sandbox(box, None))
        self._closed = True
        return receipt

    def __enter__(self) -> Sandbox:
        try:
            self.acquire()
        except BaseException:
            # There will be no __exit__.
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ExecStream:
    """The events of one command; `exec_stream` makes it."""

    def __init__(self, box: Sandbox, make_call: Callable[[str], Call[ExecResult]]) -> None:
        self._box = box
        self._make_call = make_call
        self._stack = ExitStack()
        self._events: Iterator[ServerSentEvent] | None = None
        self._result: ExecResult | None = None
        self._id = ""

    @property
    def result(self) -> ExecResult:
        """How the command ended; known after the last event."""
        if self._result is None:
            raise RuntimeError("the command has not ended: read the stream to its end first")
        return self._result

    def __enter__(self) -> ExecStream:
        call = self._make_call(self._box.acquire())
        response = self._stack.enter_context(self._box._transport.stream(call))
        self._events = _server_sent_events(response)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing the connection is what ends a command that still runs.
        self._stack.close()

    def __iter__(self) -> ExecStream:
        return self

    def __next__(self) -> ExecEvent:
        if self._events is None:
            raise RuntimeError("use `with box.exec_stream(…) as stream`")
        if self._result is not None:
            raise StopIteration
        try:
            for sent in self._events:
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


class Exec:
    """A command that lives on without its caller, by its id."""

    def __init__(self, box: Sandbox, exec_id: str) -> None:
        self._box = box
        self.id = exec_id

    def state(self) -> ExecState:
        return self._box.run(lambda box: _calls.get_exec(box, self.id))

    def follow(self, after: int = 0) -> ExecStream:
        """Its output from a byte offset on, and its end: `with`, and iterate. Leaving it
        changes nothing. What came earlier than `state().first_kept_offset` is a gap."""
        return ExecStream(self._box, lambda box: _calls.follow_exec(box, self.id, after))

    def wait(self) -> ExecResult:
        """Waits for its end; the result is without output."""
        with self.follow((self.state()).offset) as stream:
            for _ in stream:
                pass
            return stream.result

    def write(self, data: str | bytes, *, eof: bool = False) -> None:
        """Writes to the input of an interactive command; returns when all is in its pipe. `eof`
        closes it behind."""
        self._box.run(lambda box: _calls.write_exec(box, self.id, data, eof))

    def signal(self, signal: str, *, tree: bool = False) -> None:
        """TERM, KILL, …, to the command's group or to all that it started."""
        self._box.run(lambda box: _calls.signal_exec(box, self.id, signal, tree))

    def resize(self, rows: int, cols: int) -> None:
        """Of its terminal."""
        self._box.run(lambda box: _calls.resize_exec(box, self.id, rows, cols))

    def output(
        self,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        """What `keep_bytes` kept, from a byte on; at most `limit` bytes (65536)."""
        return self._box.run(
            lambda box: _calls.exec_output(box, self.id, stream, offset, limit)
        )

    def delete(self) -> None:
        """Ends it with all that it started, and forgets it."""
        self._box.run(lambda box: _calls.delete_exec(box, self.id))


class Execs:
    """Commands that live on without their caller; `sandbox.execs`."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def start(
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
    ) -> Exec:
        """Starts a command and does not wait for it. `id` is the caller's own, unique in the
        sandbox; `interactive` keeps its input open; `pty` is a terminal of rows and columns."""
        started = self._box.run(
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
        return Exec(self._box, started.id)

    def get(self, exec_id: str) -> Exec:
        """A handle of a command that was started before; asks nobody yet."""
        return Exec(self._box, exec_id)

    def list(self) -> ExecStates:
        """Those that run, and those that ended and are remembered."""
        return self._box.run(_calls.list_execs)


class Files:
    """`box.files`. Paths are absolute, or relative to the working directory.

    `root="work_dir"` confines a call to what is below the working directory.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def read(
        self,
        path: str,
        *,
        start: int | None = None,
        length: int | None = None,
        root: Root | None = None,
    ) -> bytes:
        """The file's bytes, or `length` of them from `start`."""
        return self._box.run(lambda box: _calls.read_file(box, path, start, length, root))

    def read_text(self, path: str, *, root: Root | None = None) -> str:
        return (self.read(path, root=root)).decode()

    def lines(
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
        return self._box.run(
            lambda box: _calls.read_lines(
                box, path, offset, limit, max_bytes, max_line_bytes, newline, root
            )
        )

    def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes],
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
        return self._box.run(
            lambda box: _calls.write_file(
                box, path, content, mode, create_only, parents, if_match, root
            )
        )

    def edit(
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
        return self._box.run(
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

    def stat(self, path: str, *, follow: bool = False, root: Root | None = None) -> FileEntry:
        return self._box.run(lambda box: _calls.stat_file(box, path, follow, root))

    def list(
        self,
        path: str,
        *,
        limit: int | None = None,
        after: str | None = None,
        root: Root | None = None,
    ) -> Listing:
        """The entries of a directory (1000), sorted by name, from the one behind `after`."""
        return self._box.run(lambda box: _calls.list_files(box, path, limit, after, root))

    def mkdir(
        self,
        path: str,
        *,
        parents: bool = False,
        mode: str | None = None,
        root: Root | None = None,
    ) -> FileEntry:
        return self._box.run(
            lambda box: _calls.make_directory(box, path, parents, mode, root)
        )

    def move(
        self, source: str, target: str, *, overwrite: bool = False, root: Root | None = None
    ) -> FileEntry:
        return self._box.run(
            lambda box: _calls.move_file(box, source, target, overwrite, root)
        )

    def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        root: Root | None = None,
    ) -> CopiedFiles:
        """Copies a file, or with `recursive` a directory to where nothing is."""
        return self._box.run(
            lambda box: _calls.copy_file(box, source, target, overwrite, recursive, root)
        )

    def remove(
        self,
        path: str,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        root: Root | None = None,
    ) -> bool:
        """Whether there was something. A link is removed, not followed."""
        return self._box.run(
            lambda box: _calls.remove_file(box, path, recursive, missing_ok, root)
        )

    def upload(
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
        return self._box.run(
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

    def download(
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
        return self._box.run(
            lambda box: _calls.download_files(
                box, paths, max_file_bytes, max_total_bytes, max_files, root
            )
        )


class Search:
    """`box.search`"""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def glob(
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
        return self._box.run(
            lambda box: _calls.glob(
                box, pattern, path, limit, bare_any_depth, directories, hidden, root
            )
        )

    def grep(
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
        return self._box.run(
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


class Definitions:
    """`client.agents` and `client.providers`: named definitions with revisions."""

    def __init__(self, transport: SyncTransport, kind: str) -> None:
        self._transport = transport
        self._kind = kind

    def create(self, name: str, **fields: Any) -> Definition:
        return self._transport.run(_calls.create_definition(self._kind, name, fields))

    def put(self, name: str, *, revision: int | None = None, **fields: Any) -> Definition:
        """Creates it, or replaces exactly the given revision."""
        return self._transport.run(_calls.put_definition(self._kind, name, fields, revision))

    def get(self, name: str) -> Definition:
        return self._transport.run(_calls.get_definition(self._kind, name))

    def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Definition]:
        return self._transport.run(_calls.list_definitions(self._kind, limit, cursor))

    def delete(self, name: str, *, revision: int) -> None:
        self._transport.run(_calls.delete_definition(self._kind, name, revision))


class Sessions:
    """`client.sessions`: conversations with agents, and their logs."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def create(
        self,
        agent: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        return self._transport.run(
            _calls.create_session(agent, title, metadata, idempotency_key)
        )

    def get(self, session_id: str) -> Session:
        return self._transport.run(_calls.get_session(session_id))

    def list(self, *, limit: int | None = None, cursor: str | None = None) -> Page[Session]:
        return self._transport.run(_calls.list_sessions(limit, cursor))

    def send(
        self,
        session_id: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        multitask: Literal["reject", "enqueue", "interrupt"] | None = None,
        idempotency_key: str | None = None,
    ) -> Submitted:
        """Sends a message, which starts a run; does not wait for it."""
        parts = content if isinstance(content, str) else list(content)
        return self._transport.run(
            _calls.send_message(session_id, parts, multitask, idempotency_key)
        )

    def ask(
        self,
        session_id: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        visibility: Literal["end_user", "builder"] | None = None,
        idempotency_key: str | None = None,
    ) -> Iterator[Event]:
        """Sends a message and yields the events of its run until that is over.

        Leaving the iteration stops nothing: the run goes on in the server.
        """
        submitted = self.send(session_id, content, idempotency_key=idempotency_key)
        run = submitted.run
        for event in self.stream(
            session_id, after=run.first_seq - 1, until_end_of=run.id, visibility=visibility
        ):
            yield event

    def stream(
        self,
        session_id: str,
        *,
        after: int = 0,
        until_end_of: str | None = None,
        visibility: Literal["end_user", "builder"] | None = None,
    ) -> Iterator[Event]:
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
                with self._transport.stream(call) as response:
                    for sent in _server_sent_events(response):
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
                    if (self._transport.run(_calls.get_run(until_end_of))).over:
                        return
                except ConnectionFailedError as error:
                    broken = error
            failures += 1
            if failures > _RECONNECTS:
                raise broken or ConnectionFailedError(
                    "connection_lost", "the server ends the stream again and again"
                )
            time.sleep(_RECONNECT_SECONDS * failures)

    def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        visibility: Literal["end_user", "builder"] | None = None,
        run: str | None = None,
    ) -> EventPage:
        """A page of the log; `last_seq` is the next `after`."""
        return self._transport.run(
            _calls.read_events(session_id, after, limit, visibility, run)
        )

    def runs(
        self, session_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[Run]:
        return self._transport.run(_calls.list_runs(session_id, limit, cursor))


class Runs:
    """`client.runs`"""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def get(self, run_id: str) -> Run:
        return self._transport.run(_calls.get_run(run_id))

    def cancel(self, run_id: str) -> Run:
        """Asks for the end of a run, its model call and its command; does not wait for it."""
        return self._transport.run(_calls.cancel_run(run_id))


def _end(transport: SyncTransport, info: SandboxInfo) -> bool:
    try:
        return (transport.run(_calls.delete_sandbox(info.id, info.generation))).gone
    except CaissonError as error:
        if error.code != "precondition_failed":
            raise
    # Its status has changed since: gone already, or never to be used again. Ids are not used
    # twice, so what has this id is what was acquired.
    deadline = time.monotonic() + CLOSE_SECONDS
    while True:
        now = transport.run(_calls.get_sandbox(info.id))
        if now.status == "unclean":
            now = transport.run(_calls.delete_sandbox(now.id, now.generation))
        # Somebody else may be ending it at this moment.
        if now.status != "releasing" or time.monotonic() >= deadline:
            return now.gone
        time.sleep(_SETTLE_SECONDS)


def _ends(event: Event, run: str | None) -> bool:
    return (
        run is not None
        and event.run_id == run
        and event.type == "run.state"
        and event.data.get("to_status") in RUN_OVER
    )


def _server_sent_events(response: httpx.Response) -> Iterator[ServerSentEvent]:
    parser = EventParser()
    for piece in response.iter_bytes():
        for event in parser.feed(piece):
            yield event
