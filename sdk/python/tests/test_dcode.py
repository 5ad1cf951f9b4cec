"""The sandbox provider of Deep Agents Code, as its own code finds, describes and uses it."""

from __future__ import annotations

import asyncio
import importlib.metadata
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents_code.integrations import sandbox_config
from deepagents_code.integrations.sandbox_factory import (
    create_sandbox,
    get_default_working_dir,
    verify_sandbox_deps,
)
from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxNotFoundError,
    SandboxProvider,
)
from deepagents_code.integrations.sandbox_registry import ENTRY_POINT_GROUP, SandboxRegistry

from caisson import Client
from caisson import deepagents as adapter
from caisson.deepagents import AttachedSandbox
from caisson.deepagents.dcode import CaissonProvider
from real_server import Server, eventually

NOBODY = "sbx" + "0" * 26  # an id that no sandbox has


@pytest.fixture(autouse=True)
def config(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the user has set: the server, and a configuration of dcode, which is not there yet."""
    monkeypatch.setenv("CAISSON_URL", server.url)
    path = tmp_path / "config.toml"
    monkeypatch.setattr(sandbox_config, "DEFAULT_CONFIG_PATH", path)
    return path


@pytest.fixture
def backend(client: Client) -> Iterator[AttachedSandbox]:
    backend = CaissonProvider().get_or_create()
    yield backend
    backend.close()
    client.sandboxes.delete(backend.id)


def status(client: Client, sandbox_id: str) -> str:
    return client.sandboxes.get(sandbox_id).status


def sandboxes(client: Client) -> int:
    return len(client.sandboxes.list(limit=1000).items)


# How it is found.


def test_the_installed_package_has_the_entry_point() -> None:
    (entry,) = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="caisson")
    assert entry.load() is CaissonProvider and issubclass(CaissonProvider, SandboxProvider)


def test_dcode_knows_it_before_it_uses_it() -> None:
    registry = SandboxRegistry.load()
    assert registry.is_available("caisson")
    metadata = registry.get_metadata("caisson")
    assert metadata == CaissonProvider().metadata and metadata.name == "caisson"
    assert metadata.supports_sandbox_id and not metadata.supports_snapshot_name
    assert get_default_working_dir("caisson") == "/workspace"
    verify_sandbox_deps("caisson")


# Its life.


def test_dcode_makes_one_and_ends_it(client: Client, tmp_path: Path) -> None:
    setup = tmp_path / "setup.sh"
    setup.write_text("echo set up > state.txt")
    with create_sandbox("caisson", setup_script_path=str(setup)) as backend:
        assert status(client, backend.id) == "ready"
        assert backend.execute("pwd; cat state.txt").output == "/workspace\nset up\n"
        assert backend.write("/workspace/a.py", "needle\n").error is None
        found = backend.glob("*.py", "/workspace").matches or []
        assert [match["path"] for match in found] == ["/workspace/a.py"]
        assert backend.write("/large_tool_results/x", "much").error is None
    assert status(client, backend.id) == "released"


def test_dcode_uses_one_that_is_there_and_lets_it_be(client: Client) -> None:
    with client.sandbox() as box:
        box.files.write("kept.txt", "kept")
        with create_sandbox("caisson", sandbox_id=box.id) as backend:
            assert backend.id == box.id
            assert backend.execute("cat kept.txt").output == "kept"
            backend.write("/workspace/more.txt", "more")
        assert status(client, backend.id) == "ready"
        with create_sandbox("caisson", sandbox_id=box.id) as again:
            assert again.execute("cat more.txt").output == "more"
        assert box.files.read_text("more.txt") == "more"


async def test_the_twins_do_the_same(client: Client) -> None:
    provider = CaissonProvider()
    backend = await provider.aget_or_create()
    same = await provider.aget_or_create(sandbox_id=backend.id)
    assert (await backend.aexecute("echo one > f")).exit_code == 0
    assert (await same.aexecute("cat f")).output == "one\n"
    # Letting go ends nothing.
    assert await backend.aclose() is True and await same.aclose() is True
    assert status(client, backend.id) == "ready"
    await provider.adelete(sandbox_id=backend.id)
    assert status(client, backend.id) == "released"


async def test_dcode_calls_from_an_event_loop_that_must_not_block(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server refuses connections that are opened in the loop's thread."""
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return connect(self, address)
        raise AssertionError("a connection was opened in the loop's thread")

    setup = tmp_path / "setup.sh"
    setup.write_text("echo set up > state.txt")
    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "connect", checked)
        with create_sandbox("caisson", setup_script_path=str(setup)) as backend:
            patched.undo()
            assert (await backend.aexecute("cat state.txt")).output == "set up\n"
            patched.setattr(socket.socket, "connect", checked)
    assert status(client, backend.id) == "released"


def test_ending_it_again_changes_nothing(client: Client) -> None:
    provider = CaissonProvider()
    backend = provider.get_or_create()
    for _ in range(3):
        provider.delete(sandbox_id=backend.id)
        assert status(client, backend.id) == "released"
    for wrong in (NOBODY, "", "x"):
        with pytest.raises(SandboxNotFoundError):
            provider.delete(sandbox_id=wrong)


def test_parameters_come_from_the_users_configuration(client: Client, config: Path) -> None:
    config.write_text(
        """
        [sandboxes]
        default = "caisson"
        [sandboxes.providers.caisson]
        class_path = "caisson.deepagents.dcode:CaissonProvider"
        working_dir = "/workspace"
        params = { ttl_ms = 600000, env = { GREETING = "hello" }, writable_paths = ["/srv/x"] }
        """
    )
    assert SandboxRegistry.load().default == "caisson"
    with create_sandbox("caisson") as backend:
        assert client.sandboxes.get(backend.id).spec["ttl_ms"] == 600_000
        assert backend.execute("echo $GREETING > /srv/x/f; cat /srv/x/f").output == "hello\n"
        # They are there for sandboxes that exist, too, and change nothing about them.
        with create_sandbox("caisson", sandbox_id=backend.id) as same:
            assert same.execute("cat /srv/x/f").output == "hello\n"


# What is refused. Nothing is made then.


def test_an_id_of_no_sandbox(client: Client, server: Server) -> None:
    provider = CaissonProvider()
    over = client.sandboxes.create()
    over.close()
    with Client(server.url, scope={"Tenant": "other"}) as other, other.sandbox() as foreign:
        before = sandboxes(client)
        for wrong, why in (
            (NOBODY, f"no sandbox '{NOBODY}'"),
            (foreign.id, f"no sandbox '{foreign.id}'"),
            (over.id, f"sandbox {over.id} is gone"),
            ("", "no sandbox"),
            ("../agents", "no sandbox"),
        ):
            with pytest.raises(SandboxNotFoundError, match=why):
                provider.get_or_create(sandbox_id=wrong)
            with pytest.raises(SandboxNotFoundError), create_sandbox("caisson", sandbox_id=wrong):
                pass
        with pytest.raises(SandboxNotFoundError):
            provider.delete(sandbox_id=foreign.id)
        assert other.sandboxes.get(foreign.id).status == "ready"
        assert sandboxes(client) == before


def test_what_the_server_does_not_allow(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sandboxes(client)
    provider = CaissonProvider()
    with pytest.raises(SandboxError, match="egress_not_enforced") as caught:
        provider.get_or_create(egress_allow=["example.com"])
    assert caught.value.original_exc is not None
    with pytest.raises(ValueError, match="egress_allow"):
        provider.get_or_create(egress_allow=["https://example.com"])
    for wrong in ("snapshot", "work_dir", "limits"):
        with pytest.raises(TypeError, match=wrong):
            provider.get_or_create(**{wrong: "x"})
    with pytest.raises(SandboxError, match="invalid_timeout"):
        provider.get_or_create(execute_timeout=-1)
    assert sandboxes(client) == before
    monkeypatch.setenv("CAISSON_URL", "http://127.0.0.1:9")
    for call in (provider.get_or_create, lambda: provider.delete(sandbox_id=NOBODY)):
        with pytest.raises(SandboxError, match="unavailable"):
            call()


# It stays the sandbox whose id was told, whatever happens in it.


def test_a_timeout_keeps_it(client: Client, backend: AttachedSandbox) -> None:
    backend.write("/workspace/f", "kept")
    response = backend.execute("sleep 62.5", timeout=1)
    assert response.output == "<no output>\n" + adapter.UNFINISHED.format(seconds=1)
    assert response.exit_code is None
    assert backend.execute("cat f; ps ax | grep '[6]2.5'").output == "kept"


def test_an_end_that_is_not_known_keeps_it(client: Client, backend: AttachedSandbox) -> None:
    box = client.sandboxes.attach(backend.id)

    def kill() -> None:
        assert eventually(lambda: bool(box.execs.list()))
        box.execs.get(box.execs.list()[0].id).signal("KILL", tree=True)

    thread = threading.Thread(target=kill)
    thread.start()
    response = backend.execute("echo > f; sleep 60")
    thread.join()
    assert response.output == "<no output>\n" + adapter.NO_RESULT
    assert response.exit_code is None
    assert backend.execute("ls").output == "f\n"


def test_when_it_is_gone_there_is_no_other(client: Client, backend: AttachedSandbox) -> None:
    before = sandboxes(client)
    client.sandboxes.delete(backend.id)
    for _ in range(2):
        assert backend.execute("true").output == adapter.UNAVAILABLE
        assert backend.read("/workspace/f").error == adapter.UNAVAILABLE
    assert sandboxes(client) == before
