"""Commands that live on without their caller."""

from __future__ import annotations

import asyncio

import pytest

from caisson import (
    AsyncClient,
    CaissonError,
    Client,
    CommandError,
    ConflictError,
    ExecOutput,
    ExecResult,
    NotFoundError,
)
from real_server import Server, eventually


def text_of(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, ExecOutput))


def test_a_command_is_left_and_found_again(client: Client) -> None:
    with client.sandbox() as box:
        started = box.execs.start("echo begun; read x; echo got $x", id="job", interactive=True)
        assert started.id == "job"
        with started.follow() as stream:
            for event in stream:
                if isinstance(event, ExecOutput):
                    break  # leaving changes nothing
        assert started.state().state == "running"
        again = box.execs.get("job")
        again.write("word\n", eof=True)
        result = again.wait()
        assert (result.code, result.reason, result.stdout) == (0, "exited", "")
        with again.follow(after=6) as stream:
            events = list(stream)
        assert text_of(events) == "got word\n"
        assert isinstance(events[-1], ExecResult)
        assert [state.id for state in box.execs.list()] == ["job"]
        state = again.state()
        assert state.exit is not None and state.exit.code == 0
        with pytest.raises(ConflictError) as late:
            again.write("more")
        assert late.value.code == "exec_ended"


def test_signals_terminals_and_the_end(client: Client) -> None:
    with client.sandbox() as box:
        loop = box.execs.start("trap 'exit 3' USR1; echo up; while :; do sleep 0.1; done")
        assert eventually(lambda: loop.state().offset == 3)
        loop.signal("USR1")
        assert loop.wait().code == 3

        tty = box.execs.start("stty size; read x; stty size", pty=(20, 70))
        assert eventually(lambda: tty.state().offset >= 7)
        tty.resize(30, 90)
        tty.write("\n")
        tty.wait()
        with tty.follow() as stream:
            assert "20 70\r\n" in text_of(list(stream))

        killed = box.execs.start(["sleep", "1000"])
        killed.signal("KILL", tree=True)
        assert killed.wait().reason == "killed"
        assert box.execs.start("sleep 1000", timeout=0.1).wait().reason == "timeout"
        with pytest.raises(CommandError) as missing:
            box.execs.start(["no-such-program"])
        assert missing.value.code == "command_not_found"

        gone = box.execs.start("sleep 1000")
        gone.delete()
        with pytest.raises(CaissonError) as error:
            gone.state()
        assert error.value.code == "exec_not_found"
        assert isinstance(error.value, (CommandError, NotFoundError))


def test_output_is_kept_and_read_by_offset(client: Client) -> None:
    with client.sandbox() as box:
        result = box.exec(
            "seq 100000; echo bad >&2", output_limit_bytes=2048, keep_bytes=10_000_000
        )
        whole = "".join(f"{i}\n" for i in range(1, 100_001)).encode()
        assert result.truncated and len(result.stdout) <= 2048
        assert (result.stdout_kept_bytes, result.stderr_kept_bytes) == (len(whole), 4)
        kept = box.execs.get(result.id)
        assert kept.output(limit=len(whole)) == whole
        assert kept.output(offset=1000, limit=10) == whole[1000:1010]
        assert kept.output("stderr") == b"bad\n"
        assert box.exec("true").stdout_kept_bytes is None
        with pytest.raises(CaissonError) as beyond:
            kept.output(offset=len(whole) + 1)
        assert beyond.value.code == "offset_past_end"


async def test_the_same_for_asyncio(server: Server) -> None:
    async with AsyncClient(server.url) as client, client.sandbox() as box:
        job = await box.execs.start("read x; echo got $x; sleep 1000", interactive=True)
        await job.write("it\n", eof=True)
        async with job.follow() as stream:
            async for event in stream:
                if isinstance(event, ExecOutput):
                    assert event.text == "got it\n"
                    break
        waiting = asyncio.create_task(job.wait())
        await asyncio.sleep(0)
        await job.signal("TERM", tree=True)
        assert (await waiting).signal == "TERM"
        assert [state.id for state in await box.execs.list()] == [job.id]
