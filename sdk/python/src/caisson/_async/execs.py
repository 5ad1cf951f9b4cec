"""Commands of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Unpack

from .._calls import execs as _calls
from .._fields import CommandFields
from ..types import ExecEvent, ExecResult, ExecStarted, ExecState
from .streams import AsyncEventStream

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

# Classes with a method `list` cannot name the type.
ExecStates = list[ExecState]


class AsyncExecStream(AsyncEventStream):
    """The events of one command; `exec_stream` makes it."""

    _result: ExecResult | None = None
    _id = ""

    @property
    def result(self) -> ExecResult:
        """How the command ended; known after the last event."""
        if self._result is None:
            raise RuntimeError("the command has not ended: read the stream to its end first")
        return self._result

    async def __aenter__(self) -> AsyncExecStream:
        await self.open()
        return self

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> ExecEvent:
        if self._result is not None:
            raise StopAsyncIteration
        while (sent := await self.receive()) is not None:
            event = _calls.exec_event(sent)
            if isinstance(event, ExecStarted):
                self._id = event.id
            if isinstance(event, ExecResult):
                self._result = event = replace(event, id=self._id)
            if event is not None:
                return event
        raise _calls.no_result() from self._broken


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
        interactive: bool = False,
        pty: tuple[int, int] | None = None,
        **fields: Unpack[CommandFields],
    ) -> AsyncExec:
        """Starts a command and does not wait for it. `id` is the caller's own, unique in the
        sandbox; `interactive` keeps its input open; `pty` is a terminal of rows and columns."""
        started = await self._box.run(
            lambda box: _calls.start_background(box, command, id, interactive, pty, fields)
        )
        return AsyncExec(self._box, started.id)

    def get(self, exec_id: str) -> AsyncExec:
        """A handle of a command that was started before; asks nobody yet."""
        return AsyncExec(self._box, exec_id)

    async def list(self) -> ExecStates:
        """Those that run, and those that ended and are remembered."""
        return await self._box.run(_calls.list_execs)
