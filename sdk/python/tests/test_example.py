"""examples/deepagents-python runs, and its delete hook ends the sandbox."""

from __future__ import annotations

import os
import subprocess
import sys

from caisson import Client
from real_server import Server
from test_sandbox import REPOSITORY


def test_the_example_runs(server: Server) -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")
    }
    with Client(server.url) as client:
        before = {box.id for box in client.sandboxes.list(limit=1000).items}
        done = subprocess.run(
            [
                sys.executable,
                REPOSITORY / "examples" / "deepagents-python" / "main.py",
                "How many?",
            ],
            env={**environment, "CAISSON_URL": server.url},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        readme = (REPOSITORY / "examples" / "deepagents-python" / "README.md").read_text()
        assert done.stdout.strip() in readme
        made = [box for box in client.sandboxes.list(limit=1000).items if box.id not in before]
        assert len(made) == 1 and made[0].status == "released"
