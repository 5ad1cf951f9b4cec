"""Server-Sent Events of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from .._http import EventParser, ServerSentEvent


async def server_sent_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    parser = EventParser()
    async for piece in response.aiter_bytes():
        for event in parser.feed(piece):
            yield event
