"""A real server for the tests: a free port, a data directory of its own.

After the last test every sandbox must have been ended by the tests themselves, and the host must
have nothing left of any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from caisson import Client
from real_server import LEFT_SECONDS, Server, eventually, of_sandboxes, start_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if os.geteuid() != 0:
        pytest.skip("sandboxes with all limits need root")
    folder = tmp_path_factory.mktemp("caisson-sdk")
    server = start_server(folder / "data", folder / "log")
    ids: list[str] = []
    alive: list[str] = []
    try:
        yield server
        with Client(server.url) as client:

            def look() -> bool:
                ids.clear()
                alive.clear()
                cursor: str | None = None
                while True:
                    page = client.sandboxes.list(limit=1000, cursor=cursor)
                    ids.extend(box.id for box in page.items)
                    alive.extend(f"{box.id} {box.status}" for box in page.items if not box.gone)
                    cursor = page.next_cursor
                    if cursor is None:
                        return not alive

            eventually(look, LEFT_SECONDS)
    finally:
        server.stop()
    assert alive == [], "the tests ended without ending these sandboxes"
    assert eventually(lambda: of_sandboxes(ids) == [], LEFT_SECONDS), of_sandboxes(ids)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may stop."""
    if os.geteuid() != 0:
        pytest.skip("sandboxes with all limits need root")
    server = start_server(tmp_path / "data", tmp_path / "log")
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client
