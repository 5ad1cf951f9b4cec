"""Agents, sessions, runs and their events; the server's own demo model takes the model's place."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from caisson import (
    AsyncClient,
    Client,
    ConflictError,
    Event,
    InvalidRequestError,
    PreconditionFailedError,
)
from real_server import Server, caisson, eventually, start_server


@pytest.fixture(scope="module")
def demo_model() -> Iterator[str]:
    process = subprocess.Popen([caisson(), "demo-model"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def agent(client: Client, demo_model: str) -> Iterator[str]:
    provider = client.providers.create(
        "demo", protocol="openai", base_url=demo_model, model="demo-script"
    )
    agent = client.agents.create("helper", provider="demo", system_prompt="Help.")
    yield "helper"
    for box in client.sandboxes.list(limit=1000).items:
        if box.session_id and not box.gone:
            client.sandboxes.delete(box.id)
    client.agents.delete("helper", revision=agent.revision)
    client.providers.delete("demo", revision=provider.revision)


def test_definitions_have_revisions(client: Client) -> None:
    first = client.providers.create("p", protocol="openai", model="m")
    with pytest.raises(ConflictError):
        client.providers.create("p", protocol="openai", model="m")
    with pytest.raises(InvalidRequestError):
        client.providers.create("q", protocol="smoke")
    second = client.providers.put("p", revision=first.revision, protocol="openai", model="n")
    assert second.definition["model"] == "n" and second.revision != first.revision
    with pytest.raises(PreconditionFailedError):
        client.providers.put("p", revision=first.revision, protocol="openai", model="o")
    assert client.providers.get("p") == second
    assert "p" in {item.name for item in client.providers.list().items}
    client.providers.delete("p", revision=second.revision)


def test_a_run_is_streamed_and_can_be_read_again(client: Client, agent: str) -> None:
    session = client.sessions.create(agent, title="t", metadata={"a": 1})
    assert client.sessions.get(session.id).metadata == {"a": 1}
    # What the script of the demo model looks at.
    box = client.sandboxes.create(session_id=session.id)
    status = "Package: a\nStatus: install ok installed\nInstalled-Size: 1\nDescription: an a\n\n"
    box.files.write("status", status)
    events = list(client.sessions.ask(session.id, "Which package is largest?"))
    first = events[0].seq  # behind what the log says of the sandbox
    assert [event.seq for event in events] == list(range(first, first + len(events)))
    assert events[-1].data["to_status"] == "done"
    text = "".join(event.data["content"] for event in events if event.type.endswith(".delta"))
    assert "report.md" in text
    assert "| a | 0.0 MiB | an a |" in box.files.read_text("report.md")

    run = client.runs.get(events[-1].run_id or "")
    assert run.status == "done" and run.over
    assert [one.id for one in client.sessions.runs(session.id).items] == [run.id]
    page = client.sessions.events(session.id, limit=3)
    assert [event.seq for event in page.items] == [1, 2, 3]
    rest = list(client.sessions.stream(session.id, after=page.last_seq, until_end_of=run.id))
    assert (page.items + rest)[first - 1 :] == events
    assert list(client.sessions.stream(session.id, after=events[-1].seq, until_end_of=run.id)) == []
    released = client.sessions.release(session.id)
    assert released.status == "complete" and released.sandbox and released.sandbox.gone
    assert client.sessions.release(session.id) == released
    for event in client.sessions.stream(session.id):
        assert event == page.items[0]
        break
    assert box.close() is True


async def test_a_run_is_streamed_asynchronously(server: Server, agent: str) -> None:
    async with AsyncClient(server.url) as client:
        session = await client.sessions.create(agent)
        types = [event.type async for event in client.sessions.ask(session.id, "Go.")]
        assert types[0] == "message.user.accepted" and types[-1] == "run.state"


class SilentModel(BaseHTTPRequestHandler):
    """Takes a request and never answers."""

    def do_POST(self) -> None:
        self.server.release.wait(30)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


def test_a_run_can_be_cancelled(client: Client) -> None:
    model = ThreadingHTTPServer(("127.0.0.1", 0), SilentModel)
    model.release = threading.Event()  # type: ignore[attr-defined]
    threading.Thread(target=model.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{model.server_port}/v1"
    client.providers.create("silent", protocol="openai", base_url=url, model="m")
    client.agents.create("waits", provider="silent")
    session = client.sessions.create("waits")
    submitted = client.sessions.send(session.id, "hi", idempotency_key="k")
    assert client.sessions.send(session.id, "hi", idempotency_key="k").run.id == submitted.run.id
    with pytest.raises(ConflictError, match="session_busy"):
        client.sessions.send(session.id, "again")
    client.runs.cancel(submitted.run.id)
    assert eventually(lambda: client.runs.get(submitted.run.id).status == "cancelled")
    model.release.set()  # type: ignore[attr-defined]
    model.shutdown()


def test_a_stream_survives_the_server(own_server: Server, demo_model: str) -> None:
    """The log is durable: a reader goes on behind the last event when the server is back."""
    client = Client(own_server.url)
    client.providers.create("demo", protocol="openai", base_url=demo_model, model="demo-script")
    client.agents.create("helper", provider="demo")
    session = client.sessions.create("helper")
    first = list(client.sessions.ask(session.id, "Go."))
    port = int(own_server.url.rsplit(":", 1)[1])
    seen: list[Event] = []
    reader = threading.Thread(target=lambda: seen.extend(read_two_runs(client, session.id)))
    reader.start()
    assert eventually(lambda: len(seen) >= len(first))
    own_server.stop()
    again = start_server(own_server.data, own_server.data.parent / "log", port)
    try:
        second = list(client.sessions.ask(session.id, "Again."))
        reader.join(30)
        # Between the two the log tells of the sandbox, which ended with the first server.
        assert seen[: len(first)] == first and seen[-len(second) :] == second
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    finally:
        again.stop()
        client.close()


def read_two_runs(client: Client, session: str) -> Iterator[Event]:
    ends = 0
    for event in client.sessions.stream(session):
        yield event
        ends += event.type == "run.state" and event.data["to_status"] == "done"
        if ends == 2:
            return
