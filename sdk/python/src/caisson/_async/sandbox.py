"""One sandbox."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

from .._calls import execs as exec_calls
from .._calls import sandboxes as _calls
from .._fields import CommandFields
from .._http import Call
from .._transport import AsyncLock, AsyncTransport
from ..errors import CaissonError, ConnectionFailedError, SandboxGoneError
from ..types import ExecOutput, ExecResult, SandboxInfo, SandboxUsage
from .execs import AsyncExecs, AsyncExecStream
from .files import AsyncFiles, AsyncSearch
from .sets import AsyncSets

T = TypeVar("T")
OnOutput = Callable[[str], None]

_SETTLE_TRIES = 10
_SETTLE_SECONDS = 0.3


class AsyncSandbox:
    """A sandbox: commands, `files`, `search` and `sets`.

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
        self.sets = AsyncSets(self)

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
        stdin: str | bytes | None = None,
        output_limit_bytes: int | None = None,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        **fields: Unpack[CommandFields],
    ) -> ExecResult:
        """Runs a command, text for /bin/sh or a list as it is, and waits for its end.

        Its end is in the result, whatever it is; an exception means that it was not started or
        that its end is not known. Output beyond `output_limit_bytes` (65536, at most 4 MiB) is
        counted and dropped. With `on_stdout` or `on_stderr` output goes there as it comes, and is
        not in the result. With `keep_bytes`, `execs.get(result.id)` reads what the result does
        not show. Cancelling this call ends the command.
        """
        if on_stdout is None and on_stderr is None:
            return await self.run(
                lambda box: exec_calls.start_exec(
                    box, command, stdin, output_limit_bytes, False, fields
                )
            )
        stream = self.exec_stream(
            command, stdin=stdin, output_limit_bytes=output_limit_bytes, **fields
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
        stdin: str | bytes | None = None,
        output_limit_bytes: int | None = None,
        **fields: Unpack[CommandFields],
    ) -> AsyncExecStream:
        """Runs a command and yields its events: use it as `async with` and iterate.

        Leaving before the end ends the command. A slow reader slows it.
        """
        return AsyncExecStream(
            self,
            lambda box: exec_calls.start_exec(
                box, command, stdin, output_limit_bytes, True, fields
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
                self._ended = await end_sandbox(self._transport, self._info)
            return self._info is None or self._ended
        except CaissonError:
            return False

    async def _settle(self) -> bool:
        """Ends what an unanswered create may have made: its key tells which."""
        for _ in range(_SETTLE_TRIES):
            made = await self._transport.run(
                _calls.create_sandbox(self._spec or {}, self._creation_key())
            )
            if made.gone or (made.status == "ready" and await end_sandbox(self._transport, made)):
                self._unsettled, self._info = False, None
                return True
            await asyncio.sleep(_SETTLE_SECONDS)
        return False

    async def usage(self) -> SandboxUsage:
        return await self.run(_calls.sandbox_usage)

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


async def end_sandbox(transport: AsyncTransport, info: SandboxInfo) -> bool:
    """Ends exactly this one; whether it is gone."""
    try:
        return (await transport.run(_calls.delete_sandbox(info.id, info.generation))).gone
    except CaissonError as error:
        if error.code != "precondition_failed":
            raise
    # Its status has changed since, perhaps to one that is never used again. Ids are not used
    # twice, so what has this id is what was acquired.
    now = await transport.run(_calls.get_sandbox(info.id))
    if now.status == "unclean":
        now = await transport.run(_calls.delete_sandbox(now.id, now.generation))
    return now.gone
