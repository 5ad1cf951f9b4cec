"""The one sandbox of a conversation, whoever calls: made by the first operation, made again when
one was discarded, and ended exactly.

The halves of each pair of methods say the same; only waiting differs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from typing import Any, TypeVar

from .._async.client import AsyncClient
from .._sync.client import Client
from ..errors import CaissonError
from ..types import SandboxInfo
from .admission import Admission, Turn
from .operation import NotAdmittedError, Operation
from .sentences import UNAVAILABLE
from .spec import SandboxSpec

log = logging.getLogger("caisson")
R = TypeVar("R")

_CLOSE_SECONDS = 10.0


class SharedSandbox:
    """With `attached` it is that one, which is neither ended nor made again: then the
    specification's `after_unfinished` is `keep_always`."""

    def __init__(
        self,
        name: str,
        spec: SandboxSpec,
        client: Client,
        owns_client: bool,
        attached: SandboxInfo | None = None,
    ) -> None:
        self._name = name  # in the log
        self._spec = spec
        self._body = spec.fields()
        self._client = client
        self._owns_client = owns_client
        self._async_client = AsyncClient(settings=client.settings)
        self._gate = Admission(client.sandboxes.dispose, attached)
        self._ending: set[asyncio.Task[bool]] = set()

    @property
    def info(self) -> SandboxInfo | None:
        """Of the sandbox that is used now."""
        return self._gate.info

    @property
    def inside(self) -> int:
        """How many operations are in it now."""
        return self._gate.inside

    def run(self, op: Operation[R]) -> R:
        try:
            info = self._enter(op)
        except NotAdmittedError:
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
            doom = op.dooms(end, self._spec.after_unfinished)
            return op.result(self._name, end, doom)
        finally:
            self._gate.leave(doom)

    async def arun(self, op: Operation[R]) -> R:
        try:
            info = await self._aenter(op)
        except NotAdmittedError:
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
            doom = op.dooms(end, self._spec.after_unfinished)
            return op.result(self._name, end, doom)
        finally:
            self._gate.leave(doom)

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

    def _enter(self, op: Operation[Any]) -> SandboxInfo:
        while True:
            turn = self._gate.enter()
            if isinstance(turn, SandboxInfo):
                return turn
            if turn is Turn.CLOSED:
                raise NotAdmittedError
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
                raise NotAdmittedError from None

    async def _aenter(self, op: Operation[Any]) -> SandboxInfo:
        while True:
            turn = self._gate.enter()
            if isinstance(turn, SandboxInfo):
                return turn
            if turn is Turn.CLOSED:
                raise NotAdmittedError
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
                raise NotAdmittedError from None

    def _make(self, op: Operation[Any]) -> SandboxInfo:
        box = self._client.sandbox(**self._body)
        try:
            box.acquire(timeout=op.remaining())
            if self._needs_directory(box.info):
                box.files.mkdir(self._spec.directory, parents=True)
        except CaissonError as error:
            log.warning("%s: no sandbox: %s", self._name, error)
            # Nobody else knows of what may have been made. No reply waits for its end.
            threading.Thread(target=box.close, name="caisson-dispose").start()
            raise NotAdmittedError from error
        except BaseException:
            box.close()
            raise
        assert box.info is not None
        return box.info

    async def _amake(self, op: Operation[Any]) -> SandboxInfo:
        box = self._async_client.sandbox(**self._body)
        try:
            await box.acquire(timeout=op.remaining())
            if self._needs_directory(box.info):
                await box.files.mkdir(self._spec.directory, parents=True)
        except CaissonError as error:
            log.warning("%s: no sandbox: %s", self._name, error)
            ending = asyncio.create_task(box.aclose())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise NotAdmittedError from error
        except BaseException:
            await box.aclose()
            raise
        assert box.info is not None
        return box.info

    def _needs_directory(self, info: SandboxInfo | None) -> bool:
        """Whether the working directory is another one than the profile's, which exists."""
        return info is not None and info.spec.get("work_dir") != self._spec.directory
