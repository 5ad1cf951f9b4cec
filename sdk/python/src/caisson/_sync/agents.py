# Made from _async/agents.py by tools/unasync.py; change that one.
"""Agents and providers, sessions with them, and their runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from .._calls import agents as _calls
from .._transport import SyncTransport
from ..errors import CaissonError, ConnectionFailedError
from ..types import RUN_OVER, Definition, Event, EventPage, Page, Released, Run, Session, Submitted
from .streams import server_sent_events

_RECONNECTS = 5
_RECONNECT_SECONDS = 0.5


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
                    for sent in server_sent_events(response):
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

    def release(self, session_id: str, *, idle_only: bool = True) -> Released:
        """Ends the session's sandbox, unless it is busy and only an idle one is to be ended. The
        session stays; its next run gets a new sandbox, without the files of the old one."""
        return self._transport.run(_calls.release_session(session_id, idle_only))


class Runs:
    """`client.runs`"""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def get(self, run_id: str) -> Run:
        return self._transport.run(_calls.get_run(run_id))

    def cancel(self, run_id: str) -> Run:
        """Asks for the end of a run, its model call and its command; does not wait for it."""
        return self._transport.run(_calls.cancel_run(run_id))


def _ends(event: Event, run: str | None) -> bool:
    return (
        run is not None
        and event.run_id == run
        and event.type == "run.state"
        and event.data.get("to_status") in RUN_OVER
    )
