"""Read-only sets."""

from __future__ import annotations

import pytest

from caisson import AsyncClient, Client, FileError, FileMissingError
from real_server import Server


def test_commands_read_a_set_and_cannot_change_it(server: Server) -> None:
    with Client(server.url) as client, client.sandbox(read_only_sets=["/opt/skills"]) as box:
        empty = box.sets.digest("/opt/skills")
        files = {"a.md": "one", "tool/run.sh": b"#!/bin/sh\necho ran\n"}
        first = box.sets.put("/opt/skills", files, executable=["tool/run.sh"])
        assert first.changed and first.digest == box.sets.digest("/opt/skills") != empty
        assert not box.sets.put("/opt/skills", files, executable=["tool/run.sh"]).changed
        assert box.exec("cd /opt/skills && cat a.md && tool/run.sh").stdout == "oneran\n"
        assert box.exec("echo x > /opt/skills/a.md").code != 0
        assert box.exec("rm -rf /opt/skills /opt/skills/").code != 0
        assert box.exec("mv /run/caisson/sets/0/current /run/caisson/sets/0/x").code != 0
        with pytest.raises(FileError):
            box.files.write("/opt/skills/a.md", "x")
        box.sets.put("/opt/skills", {"b.md": "two"})
        assert box.exec("cd /opt/skills && ls && cat b.md").stdout == "b.md\ntwo"
        assert box.search.grep("two", "/opt/skills").matches[0].path == "/opt/skills/b.md"
        with pytest.raises(FileMissingError):
            box.sets.put("/elsewhere", {})
        with pytest.raises(ValueError, match="not in files"):
            box.sets.put("/opt/skills", {}, executable=["x"])


async def test_the_async_client_has_sets_too(server: Server) -> None:
    async with AsyncClient(server.url) as client:
        async with client.sandbox(read_only_sets=["/skills"]) as box:
            applied = await box.sets.put("/skills", {f"{n}": f"{n % 3}" for n in range(9)})
            assert applied.digest == await box.sets.digest("/skills")
            assert (await box.exec("cat /skills/*")).stdout == "012012012"
