"""Definitions (`kind` is "agents" or "providers"), sessions, events, runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._http import CLOSE_SECONDS, Call, ServerSentEvent, part
from ..types import (
    Definition,
    Event,
    EventPage,
    Page,
    Released,
    Run,
    SandboxInfo,
    Session,
    Submitted,
    make,
)
from .common import get_call, json_call, one, page, with_key


def release_session(session: str, idle_only: bool) -> Call[Released]:
    def parse(data: Any) -> Released:
        box = data.get("sandbox")
        return Released(data["status"], None if box is None else make(SandboxInfo, box))

    path = f"/v1/sessions/{part(session)}/sandboxes:release"
    call = json_call("POST", path, {"idle_only": idle_only}, parse)
    return replace(call, read_seconds=CLOSE_SECONDS)


def create_definition(kind: str, name: str, fields: Mapping[str, Any]) -> Call[Definition]:
    return json_call("POST", f"/v1/{kind}", {"name": name, **fields}, one(Definition))


def put_definition(
    kind: str, name: str, fields: Mapping[str, Any], revision: int | None
) -> Call[Definition]:
    call = json_call("PUT", f"/v1/{kind}/{part(name)}", fields, one(Definition))
    if revision is None:
        return call
    return replace(call, headers={**call.headers, "If-Match": f'"{revision}"'})


def get_definition(kind: str, name: str) -> Call[Definition]:
    return get_call(f"/v1/{kind}/{part(name)}", one(Definition))


def list_definitions(kind: str, limit: int | None, cursor: str | None) -> Call[Page[Definition]]:
    return get_call(f"/v1/{kind}", page(Definition), limit=limit, cursor=cursor)


def delete_definition(kind: str, name: str, revision: int) -> Call[None]:
    return Call(
        "DELETE",
        f"/v1/{kind}/{part(name)}",
        lambda answer: None,
        headers={"If-Match": f'"{revision}"'},
    )


def create_session(
    agent: str, title: str | None, metadata: Mapping[str, Any] | None, key: str | None
) -> Call[Session]:
    body = {"agent": agent, "title": title, "metadata": metadata}
    return with_key(json_call("POST", "/v1/sessions", body, one(Session)), key)


def get_session(session: str) -> Call[Session]:
    return get_call(f"/v1/sessions/{part(session)}", one(Session))


def list_sessions(limit: int | None, cursor: str | None) -> Call[Page[Session]]:
    return get_call("/v1/sessions", page(Session), limit=limit, cursor=cursor)


def send_message(
    session: str, content: Any, multitask: str | None, key: str | None
) -> Call[Submitted]:
    def parse(data: Any) -> Submitted:
        return make(Submitted, {**data, "run": make(Run, data["run"])})

    body = {"content": content, "multitask": multitask}
    path = f"/v1/sessions/{part(session)}/messages"
    return with_key(json_call("POST", path, body, parse), key)


def list_runs(session: str, limit: int | None, cursor: str | None) -> Call[Page[Run]]:
    return get_call(f"/v1/sessions/{part(session)}/runs", page(Run), limit=limit, cursor=cursor)


def read_events(
    session: str,
    after: int,
    limit: int | None,
    visibility: str | None,
    run: str | None,
) -> Call[EventPage]:
    def parse(data: Any) -> EventPage:
        return EventPage([make(Event, item) for item in data["items"]], data["last_seq"])

    return get_call(
        f"/v1/sessions/{part(session)}/events",
        parse,
        after=after,
        limit=limit,
        visibility=visibility,
        run=run,
    )


def stream_events(
    session: str, after: int, until_end_of: str | None, visibility: str | None
) -> Call[None]:
    return Call(
        "GET",
        f"/v1/sessions/{part(session)}/stream",
        lambda answer: None,
        query={"after": after, "until_end_of": until_end_of, "visibility": visibility},
        headers={"Accept": "text/event-stream"},
        read_seconds=60.0,  # the server sends a comment every 15 seconds
    )


def log_event(event: ServerSentEvent) -> Event:
    return make(Event, json.loads(event.data))


def get_run(run: str) -> Call[Run]:
    return get_call(f"/v1/runs/{part(run)}", one(Run))


def cancel_run(run: str) -> Call[Run]:
    return json_call("POST", f"/v1/runs/{part(run)}/cancel", {}, one(Run))
