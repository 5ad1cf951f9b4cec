# Made from _async/streams.py by tools/unasync.py; change that one.
"""Server-Sent Events of an answer."""

from __future__ import annotations

from collections.abc import Iterator

import httpx

from .._http import EventParser, ServerSentEvent


def server_sent_events(response: httpx.Response) -> Iterator[ServerSentEvent]:
    parser = EventParser()
    for piece in response.iter_bytes():
        for event in parser.feed(piece):
            yield event
