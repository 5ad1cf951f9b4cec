"""How calls travel: one transport that blocks and one that awaits.

Both keep their connections where they may be used. A forked child must not write into sockets
that it shares with its parent, and connections of an event loop die with it, so there is one pool
a process, or one an event loop, made when it is first needed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx

from ._http import Call, Settings, error_from_answer, error_from_transport
from .errors import CaissonError

T = TypeVar("T")

# Clients of the parent of this process. Were they collected, their sockets would be closed by the
# rules of the protocol above them, in the parent's name.
_abandoned: list[Any] = []


class SyncLock:
    """A lock that a forked child finds free, whoever holds it in the parent."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if self._owner != os.getpid():
            # The child has one thread right after the fork.
            self._owner, self._lock = os.getpid(), threading.Lock()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class SyncTransport:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pools: dict[int, httpx.Client] = {}
        self._closed = False

    def _client(self) -> httpx.Client:
        if self._closed:
            raise CaissonError("client_closed", "this client is closed; make a new one")
        pid = os.getpid()
        client = self._pools.get(pid)
        if client is None:
            _abandoned.extend(self._pools.values())
            self._pools = {}
            made = httpx.Client(**self.settings.options())
            # Two threads may make one at once; setdefault lets one of them win.
            client = self._pools.setdefault(pid, made)
            if client is not made:
                made.close()
        return client

    def run(self, call: Call[T]) -> T:
        with self.stream(call) as response:
            response.read()
            return call.parse(response)

    @contextmanager
    def stream(self, call: Call[Any]) -> Iterator[httpx.Response]:
        """The answer as it comes; raises for one that is no success."""
        if isinstance(call.body, AsyncIterable):
            raise TypeError("an async iterable can be sent by AsyncClient only")
        try:
            with self._client().stream(
                call.method,
                call.target(),
                content=call.body,
                headers=call.headers,
                timeout=self.settings.timeouts(call),
            ) as response:
                if response.status_code >= 400:
                    response.read()
                    raise error_from_answer(response)
                yield response
        except httpx.HTTPError as error:
            raise error_from_transport(error, call, self.settings.base_url) from error

    def close(self) -> None:
        self._closed = True
        client = self._pools.pop(os.getpid(), None)
        if client is not None:
            client.close()


class AsyncLock(asyncio.Lock):
    """The twin of `SyncLock`."""


class AsyncTransport:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pools: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[int, httpx.AsyncClient]
        ] = weakref.WeakKeyDictionary()
        self._closed = False

    def _client(self) -> httpx.AsyncClient:
        if self._closed:
            raise CaissonError("client_closed", "this client is closed; make a new one")
        loop = asyncio.get_running_loop()
        found = self._pools.get(loop)
        if found is not None and found[0] == os.getpid():
            return found[1]
        if found is not None:
            _abandoned.append(found[1])
        client = httpx.AsyncClient(**self.settings.options())
        self._pools[loop] = (os.getpid(), client)
        return client

    async def run(self, call: Call[T]) -> T:
        async with self.stream(call) as response:
            await response.aread()
            return call.parse(response)

    @asynccontextmanager
    async def stream(self, call: Call[Any]) -> AsyncIterator[httpx.Response]:
        """The answer as it comes; raises for one that is no success."""
        body = call.body
        if body is not None and not isinstance(body, (bytes, AsyncIterable)):
            body = _as_async(body)
        try:
            async with self._client().stream(
                call.method,
                call.target(),
                content=body,
                headers=call.headers,
                timeout=self.settings.timeouts(call),
            ) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise error_from_answer(response)
                yield response
        except httpx.HTTPError as error:
            raise error_from_transport(error, call, self.settings.base_url) from error

    async def aclose(self) -> None:
        self._closed = True
        found = self._pools.pop(asyncio.get_running_loop(), None)
        if found is not None and found[0] == os.getpid():
            await found[1].aclose()


async def _as_async(pieces: Any) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
