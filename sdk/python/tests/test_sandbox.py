"""Sandboxes: their life, commands, errors, and the places from which they are used."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import threading
from pathlib import Path

import pytest

from caisson import (
    AsyncClient,
    CaissonError,
    Client,
    CommandError,
    ConnectionFailedError,
    ExecOutput,
    ExecResult,
    ExecStarted,
    InvalidRequestError,
    NotFoundError,
    PreconditionFailedError,
    SandboxGoneError,
    SandboxRefusedError,
)
from caisson.errors import error_class
from real_server import Server, eventually

REPOSITORY = Path(__file__).parents[3]


def running(box_exec, mark: str) -> bool:
    """Whether a process with this text in its command line runs in the sandbox."""
    quoted = f"[{mark[0]}]{mark[1:]}"
    return box_exec(f"ps ax | grep -- '{quoted}'").code == 0


# Life.


def test_a_sandbox_lives_as_long_as_its_with_block(client: Client) -> None:
    with client.sandbox(env={"GREETING": "hi"}, ttl_ms=600_000) as box:
        assert box.id is not None
        assert client.sandboxes.get(box.id).status == "ready"
        assert box.exec('echo "$GREETING"').stdout == "hi\n"
    assert client.sandboxes.get(box.id).status == "released"
    assert box.close() is True
    with pytest.raises(SandboxGoneError):
        box.exec("true")


def test_nothing_is_made_before_the_first_use(client: Client) -> None:
    before = {box.id for box in client.sandboxes.list(limit=1000).items}
    box = client.sandbox()
    assert box.id is None
    assert box.close() is True
    assert {one.id for one in client.sandboxes.list(limit=1000).items} == before
    with pytest.raises(SandboxGoneError):
        box.acquire()


def test_delete_takes_the_generation(client: Client) -> None:
    box = client.sandboxes.create()
    assert box.id is not None and box.info is not None
    with pytest.raises(PreconditionFailedError) as caught:
        client.sandboxes.delete(box.id, generation=box.info.generation + 7)
    assert caught.value.status == 412
    receipt = client.sandboxes.delete(box.id, generation=box.info.generation)
    assert receipt.gone
    assert client.sandboxes.delete(box.id) == receipt
    assert box.close() is True  # gone already, and that is confirmed


def test_a_handle_of_another_ones_sandbox_does_not_end_it(client: Client) -> None:
    with client.sandbox() as box:
        box.files.write("f", "x")
        attached = client.sandboxes.attach(box.id or "")
        assert attached.files.read("f") == b"x"
        assert attached.close() is True
        assert box.files.read("f") == b"x"
        assert attached.delete().gone


def test_an_unconfirmed_end_is_said(own_server: Server) -> None:
    client = Client(own_server.url)
    box = client.sandboxes.create()
    own_server.stop()
    assert box.close() is False
    with pytest.raises(ConnectionFailedError) as caught:
        client.sandboxes.get("x")
    assert caught.value.code == "unavailable" and caught.value.retryable
    client.close()


def test_explain_decides_without_acting(client: Client) -> None:
    before = len(client.sandboxes.list(limit=1000).items)
    allowed = client.sandboxes.explain()
    assert allowed.allowed and allowed.backend == "local" and allowed.isolation
    refused = client.sandboxes.explain(network="allow_list")
    assert not refused.allowed and refused.code == "egress_not_enforced" and refused.detail
    with pytest.raises(SandboxRefusedError):
        client.sandboxes.create(network="allow_list")
    with pytest.raises(InvalidRequestError):
        client.sandboxes.explain(network="open wide")
    assert len(client.sandboxes.list(limit=1000).items) == before


def test_scopes_do_not_see_each_other(server: Server) -> None:
    with (
        Client(server.url, scope={"Tenant": "a"}) as one,
        Client(server.url, scope={"Tenant": "b"}) as other,
        one.sandbox() as box,
    ):
        with pytest.raises(NotFoundError):
            other.sandboxes.get(box.id or "")
        assert box.id not in {item.id for item in other.sandboxes.list().items}


def test_lists_have_pages(server: Server) -> None:
    with Client(server.url, scope={"Tenant": "pages"}) as client:
        ids = []
        for _ in range(3):
            with client.sandbox() as box:
                ids.append(box.id)
        first = client.sandboxes.list(limit=2)
        assert len(first.items) == 2 and first.next_cursor
        second = client.sandboxes.list(limit=2, cursor=first.next_cursor)
        assert second.next_cursor is None
        assert {box.id for box in first.items + second.items} == set(ids)


def test_more_paths_may_be_writable(client: Client) -> None:
    with client.sandbox(writable_paths=["/data", "/large/results"]) as box:
        box.files.write("/large/results/f", "x")
        assert box.exec("echo y > /data/g; cat /data/g /large/results/f").stdout == "y\nx"
        assert box.exec("touch /large/f").code != 0
    with pytest.raises(InvalidRequestError, match="overlaps"):
        client.sandboxes.create(writable_paths=["/tmp/x"])


# Commands.


def test_a_command_gives_its_output_and_its_code(client: Client) -> None:
    with client.sandbox() as box:
        result = box.exec("echo out; echo err >&2; exit 3")
        assert (result.code, result.stdout, result.stderr) == (3, "out\n", "err\n")
        assert result.reason == "exited" and not result.ok and not result.truncated
        with pytest.raises(CommandError, match="exit code 3: err"):
            result.check()
        assert box.exec(["printf", "%s|", "a b", "$HOME"]).check().stdout == "a b|$HOME|"
        assert box.exec("cat; pwd", cwd="/tmp", stdin="in\n").stdout == "in\n/tmp\n"
        assert box.exec("cat", stdin="é".encode()).stdout == "é"
        assert box.exec('echo "$A"', env={"A": "x y"}).stdout == "x y\n"
        assert box.exec("umask", umask="077").stdout == "0077\n"
        raw = box.exec(r"printf '\377\000end'")
        assert raw.stdout_raw == b"\xff\x00end" and raw.stdout == "\ufffd\x00end"
        with pytest.raises(ValueError, match="UTF-8"):
            box.exec("cat", stdin=b"\xff")


def test_limits_of_a_command_are_reported(client: Client) -> None:
    with client.sandbox() as box:
        slow = box.exec("echo begin; sleep 71.25", timeout=0.5)
        assert (slow.code, slow.reason, slow.stdout) == (None, "timeout", "begin\n")
        assert not running(box.exec, "71.25")
        long = box.exec("seq 100000", output_limit_bytes=2000)
        assert long.code == 0 and long.truncated and len(long.stdout) == 2000
        assert long.stdout_bytes == 588895
        with pytest.raises(CommandError) as caught:
            box.exec("true", cwd="/nowhere")
        assert caught.value.code == "invalid_cwd" and "/nowhere" in caught.value.detail
        left = box.exec("sleep 5 & echo started")
        assert left.stdout == "started\n" and left.still_running == 1


def test_output_is_streamed(client: Client) -> None:
    with client.sandbox() as box:
        seen: list[str] = []

        def on_stdout(text: str) -> None:
            seen.append(text)
            box.files.write("seen", "")  # what the command waits for: the text came before its end

        result = box.exec(
            "echo a; while [ ! -e seen ]; do sleep 0.02; done; echo e >&2; exit 4",
            on_stdout=on_stdout,
            on_stderr=lambda text: seen.append(f"err {text}"),
            timeout=30,
        )
        assert seen == ["a\n", "err e\n"]
        assert result.code == 4 and result.stdout == "" and result.stdout_bytes == 2

        with box.exec_stream("printf 'x\\342\\230'; sleep 0.1; printf '\\225'; exit 9") as stream:
            with pytest.raises(RuntimeError):
                _ = stream.result
            events = list(stream)
        assert isinstance(events[0], ExecStarted) and isinstance(events[-1], ExecResult)
        assert events[-1].id == events[0].id != ""
        pieces = [event.text for event in events if isinstance(event, ExecOutput)]
        assert "".join(pieces) == "x☕" and stream.result.code == 9


def test_leaving_a_stream_ends_its_command(client: Client) -> None:
    with client.sandbox() as box:
        with box.exec_stream("echo on; sleep 72.25") as stream:
            for event in stream:
                if isinstance(event, ExecOutput):
                    break
        assert eventually(lambda: not running(box.exec, "72.25"))


async def test_cancelling_a_command_ends_it(server: Server) -> None:
    async with AsyncClient(server.url) as client, client.sandbox() as box:

        async def until_running(count: int) -> None:
            async with asyncio.timeout(20):
                while (await box.exec("pgrep -cfx 'sleep 73.25'")).stdout != f"{count}\n":
                    await asyncio.sleep(0.02)

        for options in ({}, {"on_stdout": print}):
            task = asyncio.create_task(box.exec(["sleep", "73.25"], **options))
            await until_running(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until_running(0)
        assert (await box.exec("echo alive")).stdout == "alive\n"


async def test_a_cancelled_creation_leaves_nothing(server: Server) -> None:
    async with AsyncClient(server.url, scope={"Tenant": "cancelled"}) as client:

        async def enter() -> None:
            async with client.sandbox():
                await asyncio.sleep(60)

        for wait in (0, 0.002, 0.005, 0.01, 0.02, 0.1):
            task = asyncio.create_task(enter())
            await asyncio.sleep(wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert all(box.gone for box in (await client.sandboxes.list()).items)


# Where it is used.


async def test_the_blocking_client_works_inside_an_event_loop(client: Client) -> None:
    with client.sandbox() as box:
        assert box.exec("echo here").stdout == "here\n"


def test_threads_share_a_client_and_a_sandbox(client: Client) -> None:
    with client.sandbox() as box:
        results: dict[int, str] = {}

        def work(number: int) -> None:
            results[number] = box.exec(f"echo {number}; exit {number}").stdout

        threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: f"{number}\n" for number in range(12)}


def test_an_unacquired_sandbox_is_made_once_by_threads(server: Server) -> None:
    with Client(server.url, scope={"Tenant": "once"}) as client:
        box = client.sandbox()
        threads = [threading.Thread(target=box.exec, args=("true",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(client.sandboxes.list().items) == 1
        assert box.close() is True


def test_a_client_serves_several_event_loops(server: Server) -> None:
    client = AsyncClient(server.url)
    box = client.sandbox()
    for word in ("one", "two"):
        assert asyncio.run(box.exec(f"echo {word}")).stdout == f"{word}\n"
    assert asyncio.run(box.aclose()) is True


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_its_own_connections(client: Client) -> None:
    context = multiprocessing.get_context("fork")
    with client.sandbox() as box:
        box.exec("true")
        answers = context.Queue()

        def child() -> None:
            with box:  # what the parent made is the parent's to end
                answers.put([box.exec(f"echo child {n}").stdout for n in range(20)])

        process = context.Process(target=child)
        process.start()
        parents = [box.exec(f"echo parent {n}").stdout for n in range(20)]
        assert answers.get(timeout=30) == [f"child {n}\n" for n in range(20)]
        process.join(30)
        assert parents == [f"parent {n}\n" for n in range(20)]
        assert box.exec("echo still here").stdout == "still here\n"


# Errors.


def test_errors_carry_what_the_server_says(client: Client) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.sandboxes.get("sbx00000000000000000000000000")
    error = caught.value
    assert (error.code, error.status, error.retryable) == ("not_found", 404, False)
    assert error.request_id and "sbx0000" in error.detail and str(error).startswith("not_found: ")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is NotFoundError and vars(again) == vars(error)


def test_every_class_is_for_codes_that_exist() -> None:
    table = (REPOSITORY / "src" / "base" / "error_codes.def").read_text()
    from caisson.errors import _BY_CODE

    for code in _BY_CODE:
        assert f'"{code}"' in table, code
    assert error_class("from_the_future") is CaissonError


def test_another_server_is_not_taken_for_caisson(own_server: Server) -> None:
    with Client(own_server.url + "/elsewhere") as client:
        with pytest.raises(NotFoundError):
            client.sandboxes.list()
    with pytest.raises(ValueError, match="base_url"):
        Client("localhost:8080")
    with Client("http://127.0.0.1:9") as client, pytest.raises(ConnectionFailedError):
        client.sandboxes.list()
    client = Client(own_server.url)
    client.close()
    with pytest.raises(CaissonError, match="closed"):
        client.sandboxes.list()


def test_a_sandbox_has_a_working_directory_and_lifetimes_of_its_own(client: Client) -> None:
    spec = {"work_dir": "/project", "idle_ms": 60_000, "max_exec_ms": 1_000}
    with client.sandbox(**spec) as box:  # type: ignore[arg-type]
        box.acquire()
        assert box.info is not None and box.info.spec | spec == box.info.spec
        assert box.exec("pwd; echo x > f").stdout == "/project\n"
        assert box.files.read_text("/project/f") == "x\n"
        with pytest.raises(InvalidRequestError, match="max_exec_ms"):
            box.exec("true", timeout=2)
        assert box.exec("sleep 60").reason == "timeout"
        usage = box.usage()
        assert usage.disk_bytes and usage.disk_bytes < usage.disk_limit_bytes and usage.pids == 0
    refused = client.sandboxes.explain(min_isolation="microvm")
    assert (refused.allowed, refused.code) == (False, "isolation_not_permitted")
