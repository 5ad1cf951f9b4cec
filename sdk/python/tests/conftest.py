"""A real server for the tests: the binary of CAISSON_BIN_DIR, a free port, a directory of its own.

After the last test every sandbox must have been ended by the tests themselves, and the host must
have nothing left of any.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from caisson import Client

START_SECONDS = 30
STOP_SECONDS = 60
LEFT_SECONDS = 10


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def caisson() -> Path:
    folder = os.environ.get("CAISSON_BIN_DIR")
    if not folder:
        pytest.exit("CAISSON_BIN_DIR must name the directory with the caisson program", 2)
    return Path(folder) / "caisson"


@dataclass
class Server:
    url: str
    process: subprocess.Popen[str]
    data: Path

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(STOP_SECONDS)


def start_server(data: Path, log: Path, port: int = 0) -> Server:
    with log.open("a") as errors:
        process = subprocess.Popen(
            [caisson(), "serve", "--data-dir", data, "--listen", f"127.0.0.1:{port}"]
            + ["--ephemeral"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"serves (http://\S+)", line):
            return Server(found[1], process, data)
    raise AssertionError(f"the server did not start: {log.read_text()}")


def of_sandboxes(ids: list[str]) -> list[str]:
    """What the host has of these sandboxes: mounts, control groups, processes."""
    if not ids:
        return []
    names = re.compile("|".join(ids))
    found = [f"mount {line}" for line in mounts().splitlines() if names.search(line)]
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"cgroup {folder}/{name}" for name in folders if names.search(name)]
    for status in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if names.search(status.read_text()):
                found.append(f"process {status.parent.name}")
        except OSError:
            pass  # it ended meanwhile
    return found


def mounts() -> str:
    return Path("/proc/self/mountinfo").read_text()


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
