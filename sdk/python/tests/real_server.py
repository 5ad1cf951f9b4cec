"""Starts the server of CAISSON_BIN_DIR, and looks at what sandboxes leave on the host."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

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
            [
                caisson(),
                "serve",
                "--listen",
                f"127.0.0.1:{port}",
                "--data-dir",
                data,
                "--ephemeral",
            ],
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
