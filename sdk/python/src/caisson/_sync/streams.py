# Made from _async/streams.py by tools/unasync.py; change that one.
"""Server-Sent Events of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from .._http import Call, EventParser, ServerSentEvent

if TYPE_CHECKING:
    from .sandbox import Sandbox


def server_sent_events(response: httpx.Response) -> Iterator[ServerSentEvent]:
    parser = EventParser()
    for piece in response.iter_bytes():
        for event in parser.feed(piece):
            yield event


class EventStream:
    """A call of a sandbox whose answer is read event by event, while a block is in it."""

    def __init__(self, box: Sandbox, make_call: Callable[[str], Call[Any]]) -> None:
        self._box = box
        self._make_call = make_call
        self._stack = ExitStack()
        self._events: Iterator[ServerSentEvent] | None = None
        self._broken: httpx.HTTPError | None = None

    def open(self) -> None:
        call = self._make_call(self._box.acquire())
        response = self._stack.enter_context(self._box._transport.stream(call))
        self._events = server_sent_events(response)

    def receive(self) -> ServerSentEvent | None:
        """The next event; None when there are no more, because of `_broken` or in order."""
        if self._events is None:
            raise RuntimeError("use `with … as stream`")
        try:
            for sent in self._events:
                return sent
        except httpx.HTTPError as error:
            self._broken = error
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing the connection is what tells the server that nobody reads any more.
        self._stack.close()
