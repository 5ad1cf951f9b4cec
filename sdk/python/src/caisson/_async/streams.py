"""Server-Sent Events of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from .._http import Call, EventParser, ServerSentEvent

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


async def server_sent_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    parser = EventParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event


class AsyncEventStream:
    """A call of a sandbox whose answer is read event by event, while a block is in it."""

    def __init__(self, box: AsyncSandbox, make_call: Callable[[str], Call[Any]]) -> None:
        self._box = box
        self._make_call = make_call
        self._stack = AsyncExitStack()
        self._events: AsyncIterator[ServerSentEvent] | None = None
        self._broken: httpx.HTTPError | None = None

    async def open(self) -> None:
        call = self._make_call(await self._box.acquire())
        response = await self._stack.enter_async_context(self._box._transport.stream(call))
        self._events = server_sent_events(response)

    async def receive(self) -> ServerSentEvent | None:
        """The next event; None when there are no more, because of `_broken` or in order."""
        if self._events is None:
            raise RuntimeError("use `async with … as stream`")
        try:
            async for sent in self._events:
                return sent
        except httpx.HTTPError as error:
            self._broken = error
        return None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing the connection is what tells the server that nobody reads any more.
        await self._stack.aclose()
