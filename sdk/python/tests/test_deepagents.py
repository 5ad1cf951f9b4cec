"""The Deep Agents adapter: refusals, its id, what a model is told, when a sandbox is discarded,
and its answers where the published suite does not look."""

from __future__ import annotations

import asyncio
import base64
import inspect
import multiprocessing
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from deepagents.backends.protocol import (
    BackendProtocol,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    SandboxBackendProtocol,
)
from deepagents.backends.sandbox import BaseSandbox

from caisson import Client, SandboxRefusedError
from caisson import deepagents as adapter
from caisson.deepagents import CaissonSandbox, SandboxSpec, TransferLimits, sandbox_spec
from real_server import Server, eventually, start_server


@pytest.fixture(scope="module")
def backend(server: Server) -> Iterator[CaissonSandbox]:
    with Client(server.url) as client, CaissonSandbox(client=client) as backend:
        yield backend


def sandboxes(client: Client) -> set[str]:
    return {box.id for box in client.sandboxes.list(limit=1000).items}


def gone(client: Client, sandbox: str) -> bool:
    return eventually(lambda: client.sandboxes.get(sandbox).gone)


def acquired(backend: CaissonSandbox) -> str:
    """The id of the instance behind the backend; makes one where there is none."""
    assert backend.execute("true").exit_code == 0
    assert backend.sandbox_info is not None
    return backend.sandbox_info.id


# What is refused, and what is made when.


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"requires": frozenset({"exec", "files_in"})}, "capability_missing"),
        (
            {"requires": frozenset({"exec", "files_in", "files_out", "snapshot"})},
            "capability_not_supported",
        ),
        ({"isolation_scope": "call"}, "isolation_scope_not_supported"),
        ({"call_id": "c1"}, "call_id_not_empty"),
        ({"network": "unrestricted"}, "egress_not_permitted"),
        ({"egress_allow": ("example.com",)}, "egress_not_permitted"),
        ({"network": "allow_list"}, "egress_not_permitted"),
        ({"work_dir": None}, "invalid_work_dir"),
        ({"work_dir": "relative"}, "invalid_work_dir"),
        ({"execute_timeout": 0}, "invalid_timeout"),
        ({"execute_timeout": float("nan")}, "invalid_timeout"),
        ({"max_output_bytes": 10}, "invalid_limit"),
        ({"limits": TransferLimits(max_files=0)}, "invalid_limit"),
        # By the server's own decision:
        ({"limits": TransferLimits(max_files=257)}, "transfer_limits_not_permitted"),
        ({"network": "allow_list", "egress_allow": ("example.com",)}, "egress_not_enforced"),
    ],
)
def test_construction_refuses(client: Client, change: dict[str, object], code: str) -> None:
    before = sandboxes(client)
    with pytest.raises(SandboxRefusedError) as caught:
        CaissonSandbox(replace(sandbox_spec(), **change), client=client)  # type: ignore[arg-type]
    assert caught.value.code == code and caught.value.detail
    assert sandboxes(client) == before


def test_a_specification_is_closed_unless_hosts_are_named() -> None:
    assert sandbox_spec().network == "closed"
    spec = sandbox_spec(egress_allow=["Example.org", "*.example.com", "example.org"])
    assert spec.network == "allow_list" and spec.egress_allow == ("*.example.com", "example.org")
    for wrong in ("https://example.com", "example.com:80", "a b", "*", "-x.com", "x.com."):
        with pytest.raises(ValueError, match="egress_allow"):
            sandbox_spec(egress_allow=[wrong])
    with pytest.raises(ValueError, match="list of hosts"):
        sandbox_spec(egress_allow="example.com")
    assert (sandbox_spec().execute_timeout, sandbox_spec().max_output_bytes) == (120, 1_048_576)
    assert sandbox_spec().limits == TransferLimits(8 << 20, 32 << 20, 64)


def test_construction_makes_nothing_and_the_first_operation_does(client: Client) -> None:
    before = sandboxes(client)
    unused = CaissonSandbox(client=client)
    assert sandboxes(client) == before and unused.close() is True
    used = CaissonSandbox(client=client)
    assert used.ls("/workspace").entries == []
    assert len(sandboxes(client) - before) == 1
    assert used.close() is True and gone(client, (sandboxes(client) - before).pop())


def test_the_id_is_of_the_conversation_not_of_the_instance(client: Client) -> None:
    def id_of(spec: SandboxSpec | None = None, **key: str) -> str:
        with CaissonSandbox(spec, client=client, **key) as backend:  # type: ignore[arg-type]
            return backend.id

    one = id_of(thread_id="t", agent_id="a")
    assert re.fullmatch(r"caisson-[0-9a-f]{16}", one)
    assert id_of(thread_id="t", agent_id="a") == one
    others = {
        id_of(thread_id="u", agent_id="a"),
        id_of(thread_id="t", agent_id="b"),
        id_of(replace(sandbox_spec(), kind="other"), thread_id="t", agent_id="a"),
    }
    assert len(others | {one}) == 4
    with Client(client.settings.base_url, scope={"Tenant": "b"}) as tenant:
        backend = CaissonSandbox(client=tenant, thread_id="t", agent_id="a")
        assert backend.id != one
        first = acquired(backend)
        same = backend.id
        tenant.sandboxes.delete(first)
        assert backend.execute("true").exit_code is None
        assert acquired(backend) != first and backend.id == same
        assert backend.close() is True


def test_every_method_is_native() -> None:
    """None is BaseSandbox's, made of shell commands, and none is a thread around a blocking one."""
    methods = [
        name
        for owner in (BackendProtocol, SandboxBackendProtocol)
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]
    assert {"execute", "aexecute", "delete", "adelete", "glob", "aglob"} <= set(methods)
    for name in methods:
        assert getattr(CaissonSandbox, name) is not getattr(BaseSandbox, name), name
        assert "to_thread" not in inspect.getsource(getattr(CaissonSandbox, name))
        wanted = inspect.signature(getattr(BaseSandbox, name)).parameters
        assert list(inspect.signature(getattr(CaissonSandbox, name)).parameters) == list(wanted)


# What a command's output looks like.


def test_output_is_joined(backend: CaissonSandbox) -> None:
    def run(command: str) -> tuple[str, int | None]:
        response = backend.execute(command)
        return response.output, response.exit_code

    assert run("printf 'a\\nb'") == ("a\nb", 0)
    assert run("echo a") == ("a\n", 0)
    assert run("printf a; printf 'x\\ny\\n' >&2; exit 3") == ("a\n[stderr] x\n[stderr] y", 3)
    assert run("echo only >&2") == ("[stderr] only", 0)
    assert run("true") == ("<no output>", 0)
    assert run("sleep 3 & echo up") == ("up\n[note] 1 of its processes still run", 0)
    assert run("kill -9 $$") == ("<no output>\n[note] ended by signal KILL", None)
    assert run("pwd") == ("/workspace\n", 0)
    assert run("cat") == ("<no output>", 0)


def test_the_working_directory_may_be_anywhere(client: Client) -> None:
    spec = sandbox_spec(work_dir="/project", writable_paths=["/data"])
    with CaissonSandbox(spec, client=client) as backend:
        assert backend.execute("pwd; echo x > f; echo y > /data/g; cat f /data/g").output == (
            "/project\nx\ny\n"
        )
        assert backend.write("/large_tool_results/x", "x").error is None


def test_the_working_directory_may_be_below_another_one(client: Client) -> None:
    spec = sandbox_spec(work_dir="/tmp/mine/deep")
    with CaissonSandbox(spec, client=client) as backend:
        assert backend.execute("pwd; echo x > f").output == "/tmp/mine/deep\n"
        assert backend.write("rel", "x").error is None
        assert backend.grep("x").matches == [
            {"path": "/tmp/mine/deep/f", "line": 1, "text": "x"},
            {"path": "/tmp/mine/deep/rel", "line": 1, "text": "x"},
        ]
        said = backend.execute("rm -r /tmp/mine; true").output
        assert said == "<no output>"
        gone = backend.execute("pwd")
        assert gone.output.startswith("/\n[note] the working directory /tmp/mine/deep")


# The five sentences about a command, and what becomes of the sandbox.


def test_sentence_unavailable(own_server: Server) -> None:
    client = Client(own_server.url)
    backend = CaissonSandbox(client=client)
    own_server.stop()
    wanted = ExecuteResponse(output=adapter.UNAVAILABLE, exit_code=None, truncated=False)
    assert backend.execute("echo hi") == wanted
    assert asyncio.run(backend.aexecute("echo hi")) == wanted
    assert backend.read("/f").error == adapter.UNAVAILABLE
    assert backend.upload_files([("/f", b"")]) == [FileUploadResponse("/f", adapter.UNAVAILABLE)]
    # Nothing was ever made, so nothing is left.
    assert backend.close() is True
    assert backend.execute("echo hi") == wanted


def test_sentence_timeout_discards(client: Client) -> None:
    backend = CaissonSandbox(client=client)
    first = acquired(backend)
    response = backend.execute("echo begin; sleep 60", timeout=1)
    sentence = adapter.UNFINISHED.format(seconds=1) + adapter.DISCARDED
    assert response == ExecuteResponse(f"begin\n{sentence}", exit_code=None, truncated=False)
    assert acquired(backend) != first
    assert gone(client, first)
    assert backend.close() is True


def test_sentence_timeout_may_keep(client: Client) -> None:
    """A confirmed end leaves a sandbox that a host may choose to keep."""
    with CaissonSandbox(sandbox_spec(after_unfinished="keep"), client=client) as backend:
        first = acquired(backend)
        backend.write("/workspace/f", "kept")
        response = backend.execute("sleep 61.5", timeout=1)
        assert response.output == "<no output>\n" + adapter.UNFINISHED.format(seconds=1)
        assert response.exit_code is None
        assert backend.execute("cat f; ps ax | grep '[6]1.5'").output == "kept"
        assert acquired(backend) == first


def test_sentence_no_result_discards(client: Client) -> None:
    backend = CaissonSandbox(client=client)
    first = acquired(backend)
    box = client.sandboxes.attach(first)

    def end() -> None:
        assert eventually(lambda: bool(box.files.list("/workspace").entries))
        client.sandboxes.delete(first)

    thread = threading.Thread(target=end)
    thread.start()
    response = backend.execute("touch on; sleep 60")
    thread.join()
    assert response.output.endswith(adapter.NO_RESULT + adapter.DISCARDED)
    assert response.exit_code is None and not response.truncated
    assert acquired(backend) != first
    assert backend.close() is True


def test_sentence_output_limit_keeps(client: Client) -> None:
    """The server drops what is too much and knows the end, so nothing is uncertain."""
    with CaissonSandbox(sandbox_spec(max_output_bytes=2000), client=client) as backend:
        first = acquired(backend)
        response = backend.execute("seq 100000; exit 5")
        head, sentence = response.output[:2000], response.output[2000:]
        assert head.startswith("1\n2\n") and response.truncated and response.exit_code == 5
        assert sentence.strip() == adapter.OUTPUT_DROPPED.format(limit=2000)
        exact = backend.execute("head -c 2000 /dev/zero | tr '\\0' x")
        assert exact == ExecuteResponse("x" * 2000, exit_code=0, truncated=False)
        assert acquired(backend) == first


def test_sentence_not_bounded_runs_nothing(client: Client) -> None:
    """More than the server can bound: the command is not run without the bound."""
    limit = 1 << 30
    with CaissonSandbox(sandbox_spec(max_output_bytes=limit), client=client) as backend:
        response = backend.execute("touch /workspace/ran")
        assert response.output == adapter.UNBOUNDED.format(limit=limit)
        assert response.exit_code is None
        assert backend.ls("/workspace").entries == []


async def test_cancellation_discards_and_ends_the_command(client: Client) -> None:
    backend = CaissonSandbox(client=client)
    assert (await backend.aexecute("true")).exit_code == 0
    first = backend.sandbox_info
    assert first is not None
    task = asyncio.create_task(backend.aexecute("touch cancelled; sleep 60"))
    until = "until [ -e cancelled ]; do sleep 0.02; done"
    waits = f"touch other; {until}; {until.replace('until', 'while')}; echo done"
    other = asyncio.create_task(backend.aexecute(waits))
    while len((await backend.als("/workspace")).entries or []) < 2:
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Who comes now waits for the last one inside, and gets a new sandbox.
    later = asyncio.create_task(backend.aexecute("ls"))
    await asyncio.sleep(0.1)
    assert not later.done() and not other.done()
    await asyncio.to_thread(client.sandboxes.attach(first.id).files.remove, "cancelled")
    assert (await other).output == "done\n"
    assert (await later).output == "<no output>"
    assert backend.sandbox_info is not None and backend.sandbox_info.id != first.id
    assert await asyncio.to_thread(gone, client, first.id)
    assert await backend.aclose() is True


async def test_a_cancelled_read_discards_nothing(client: Client) -> None:
    async with CaissonSandbox(client=client) as backend:
        await backend.awrite("/workspace/f", "x" * 1_000_000)
        first = backend.sandbox_info
        for wait in (0, 0.001, 0.003):
            task = asyncio.create_task(backend.adownload_files(["/workspace/f"] * 8))
            await asyncio.sleep(wait)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert (await backend.aread("/workspace/f", limit=1)).error is None
        assert backend.sandbox_info == first


def test_a_lost_sandbox_is_said_and_replaced(client: Client) -> None:
    backend = CaissonSandbox(client=client)
    first = acquired(backend)
    client.sandboxes.delete(first)
    assert backend.execute("true").output == adapter.UNAVAILABLE + adapter.DISCARDED
    assert acquired(backend) != first
    assert backend.close() is True


def test_timeouts_are_per_call(backend: CaissonSandbox) -> None:
    assert backend.execute("echo x", timeout=0).output == "x\n"
    with pytest.raises(ValueError, match="timeout"):
        backend.execute("true", timeout=-1)


# The end.


def test_close_waits_for_who_is_inside(client: Client) -> None:
    backend = CaissonSandbox(client=client)
    first = acquired(backend)
    results: list[ExecuteResponse] = []
    command = "touch on; while [ -e on ]; do sleep 0.02; done; echo ok"
    thread = threading.Thread(target=lambda: results.append(backend.execute(command)))
    thread.start()
    assert eventually(lambda: bool(backend.ls("/workspace").entries))
    closed: list[bool] = []
    closing = threading.Thread(target=lambda: closed.append(backend.close()))
    closing.start()
    # Closing has begun when nobody is let in any more.
    assert eventually(lambda: backend.ls("/workspace").error == adapter.UNAVAILABLE)
    assert closed == []
    client.sandboxes.attach(first).files.remove("on")
    closing.join()
    thread.join()
    assert closed == [True] and results[0].output == "ok\n" and client.sandboxes.get(first).gone
    assert backend.execute("true").output == adapter.UNAVAILABLE
    assert backend.close() is True


def test_close_says_when_the_end_is_not_confirmed(own_server: Server) -> None:
    client = Client(own_server.url)
    blocking, asynchronous = CaissonSandbox(client=client), CaissonSandbox(client=client)
    acquired(blocking)
    acquired(asynchronous)
    own_server.stop()
    assert blocking.close() is False
    assert asyncio.run(asynchronous.aclose()) is False
    # The next server ends what it finds, and then that is confirmed.
    port = int(own_server.url.rsplit(":", 1)[1])
    again = start_server(own_server.data, own_server.data.parent / "log", port)
    try:
        assert blocking.close() is True
    finally:
        again.stop()


# Where it is used.


def test_threads_loops_and_twins_share_one_sandbox(server: Server) -> None:
    with Client(server.url, scope={"Tenant": "shared"}) as client:
        backend = CaissonSandbox(client=client)
        results: list[str] = []

        async def several() -> None:
            commands = [backend.aexecute(f"echo {n}") for n in range(4)]
            results.extend(response.output for response in await asyncio.gather(*commands))

        threads = [
            threading.Thread(target=lambda: asyncio.run(several())),
            threading.Thread(target=lambda: results.append(backend.execute("echo s").output)),
            threading.Thread(target=lambda: asyncio.run(several())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == sorted(["0\n", "1\n", "2\n", "3\n"] * 2 + ["s\n"])
        assert len(client.sandboxes.list().items) == 1
        assert backend.close() is True


async def test_blocking_methods_work_inside_an_event_loop(
    client: Client, backend: CaissonSandbox
) -> None:
    assert backend.execute("echo x").output == "x\n"
    async with await CaissonSandbox.acreate(client=client) as other:
        assert (await other.aexecute("echo y")).output == "y\n"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_uses_it_and_does_not_end_it(client: Client) -> None:
    context = multiprocessing.get_context("fork")
    with CaissonSandbox(client=client) as backend:
        acquired(backend)
        backend.write("/workspace/f", "parent's")
        answers = context.Queue()

        def child() -> None:
            with backend:
                answers.put(backend.execute("cat f").output)
                answers.put(asyncio.run(backend.aexecute("cat f")).output)

        process = context.Process(target=child)
        process.start()
        assert [answers.get(timeout=30), answers.get(timeout=30)] == ["parent's"] * 2
        process.join(30)
        assert backend.execute("cat f").output == "parent's"

        def doomed_child() -> None:
            answers.put(backend.execute("sleep 60", timeout=1).output)
            answers.put(backend.execute("cat f").exit_code)
            answers.put(backend.close())

        process = context.Process(target=doomed_child)
        process.start()
        assert "timeout" in answers.get(timeout=30)
        # It has made one of its own, and ended that.
        assert answers.get(timeout=30) == 1 and answers.get(timeout=30) is True
        process.join(30)
        assert backend.execute("cat f").output == "parent's"


# Files and search.


def test_reads_have_windows(backend: CaissonSandbox) -> None:
    path = "/workspace/rows"
    backend.upload_files([(path, b"a\r\nb\rc\x0cd\ne")])
    page = backend.read(path, offset=-5, limit=2)
    assert page.file_data == {"content": "a\nb", "encoding": "utf-8"}
    window = (page.start_line, page.end_line, page.next_offset, page.total_lines)
    assert window == (1, 2, 2, 4)
    last = backend.read(path, offset=2)
    assert last.file_data and last.file_data["content"] == "c\x0cd\ne" and last.next_offset is None
    end = backend.read(path, offset=4).error
    assert end == f"File '{path}': Line offset 4 exceeds file length (4 lines)"
    nothing = backend.read(path, limit=0)
    assert nothing.no_lines_requested and nothing.file_data == {"content": "", "encoding": "utf-8"}
    assert backend.read("/none", limit=0).error == "File '/none': file_not_found"
    assert backend.read("/workspace").error == "File '/workspace': is_directory"
    backend.write("/workspace/empty", "")
    empty = backend.read("/workspace/empty")
    assert empty.file_data == {"content": "", "encoding": "utf-8"} and not empty.no_lines_requested
    backend.write("/workspace/long", "é" * 400_000 + "\nnext")
    cut = backend.read("/workspace/long")
    assert cut.file_data and "[note] line 1 is longer" in cut.file_data["content"]
    assert cut.next_offset == 1
    following = backend.read("/workspace/long", offset=1)
    assert following.file_data and following.file_data["content"] == "next"


def test_what_is_no_text_comes_as_base64(backend: CaissonSandbox) -> None:
    for name in ("b.txt", "b.png"):
        backend.upload_files([(f"/workspace/{name}", b"\xff\0\xfe")])
        data = backend.read(f"/workspace/{name}").file_data
        assert data and data["encoding"] == "base64"
        assert base64.b64decode(data["content"]) == b"\xff\0\xfe"
    backend.upload_files([("/workspace/big.txt", b"\xff" * 600_000)])
    assert "maximum preview size" in (backend.read("/workspace/big.txt").error or "")


def test_a_write_replaces_and_text_that_is_none_is_refused(backend: CaissonSandbox) -> None:
    assert backend.write("/workspace/w", "1").error is None
    assert backend.write("/workspace/w", "2").path == "/workspace/w"
    assert backend.execute("cat w").output == "2"
    assert backend.write("/workspace/w", "\ud800").error == adapter.UNAVAILABLE
    assert "file_access_denied" in (backend.write("/etc/x", "").error or "") or "read_only" in (
        backend.write("/etc/x", "").error or ""
    )


def test_edits_follow_the_files_line_ends(backend: CaissonSandbox) -> None:
    path = "/workspace/crlf"
    backend.upload_files([(path, b"a\r\nb\r\nb\r\n")])
    assert backend.edit(path, "a\nb", "x\ny").occurrences == 1
    assert backend.download_files([path])[0].content == b"x\r\ny\r\nb\r\n"
    assert "not found" in (backend.edit(path, "zz", "y").error or "")
    assert "multiple" in (backend.edit(path, "\r\n", "").error or "")
    assert "empty" in (backend.edit(path, "", "y").error or "")


def test_listings_and_deletions(backend: CaissonSandbox) -> None:
    backend.upload_files([("/workspace/dir/.dot", b"xy"), ("/workspace/dir/sub/f", b"")])
    listing = backend.ls("/workspace//dir/./")
    assert listing.entries is not None
    assert [(entry["path"], entry["is_dir"]) for entry in listing.entries] == [
        ("/workspace/dir/.dot", False),
        ("/workspace/dir/sub", True),
    ]
    assert listing.entries[0]["size"] == 2 and listing.entries[0]["modified_at"][10] == "T"
    assert backend.ls("/nowhere").error == "Path '/nowhere': path_not_found"
    assert backend.ls("/workspace/dir/.dot").error == "Path '/workspace/dir/.dot': not_a_directory"
    backend.execute("ln -s nothing dir/broken")
    assert backend.delete("/workspace/dir/broken").error is None
    assert backend.delete("/workspace/dir").path == "/workspace/dir"
    assert "not found" in (backend.delete("/workspace/dir").error or "")
    assert backend.delete("/").error is not None


def test_searches_keep_their_contract(backend: CaissonSandbox) -> None:
    base = "/workspace/s"
    names = ["a.py", "sub/b.py", ".github/w.yml", "sub/a:1:b.txt"]
    backend.upload_files([(f"{base}/{name}", b"one\nfind $(x) me\n") for name in names])
    backend.upload_files([(f"{base}/.env", b""), (f"{base}/.github/.env", b"")])
    backend.execute("mkdir s/d.py && ln -s . s/loop")

    def glob(pattern: str) -> list[str]:
        found = backend.glob(pattern, base)
        assert found.error is None and found.matches is not None and not found.truncated
        return [match["path"].removeprefix(base) for match in found.matches]

    assert glob("*.py") == ["/a.py", "/sub/b.py"]
    assert glob("/*.py") == ["/a.py"]
    assert glob("**/*.py") == ["/a.py", "/sub/b.py"]
    assert glob("*.yml") == ["/.github/w.yml"] and glob("**/*.yml") == []
    assert glob("*") == ["/.github/w.yml", "/a.py", "/sub/a:1:b.txt", "/sub/b.py"]
    assert glob(".e*") == ["/.env", "/.github/.env"]
    assert glob("{.env,a.py}") == ["/.env", "/.github/.env", "/a.py"]
    assert "invalid_pattern" in (backend.glob("../*", base).error or "")
    assert backend.glob("*", "/nowhere").matches is None

    found = backend.grep("$(x)", base)
    assert found.matches is not None and not found.truncated
    assert {"path": f"{base}/sub/a:1:b.txt", "line": 2, "text": "find $(x) me"} in found.matches
    assert len(found.matches) == 4
    exact = backend.grep("$(x)", base, max_count=4)
    assert exact.matches is not None and len(exact.matches) == 4 and not exact.truncated
    capped = backend.grep("$(x)", base, max_count=3)
    assert capped.matches is not None and len(capped.matches) == 3 and capped.truncated
    none = backend.grep("$(x)", base, max_count=0)
    assert none.matches == [] and none.truncated
    assert backend.grep("x", "/nowhere").matches == []
    one = backend.grep("one", f"{base}/a.py")
    assert one.matches == [{"path": f"{base}/a.py", "line": 1, "text": "one"}]


# The four rules of transfers.


@pytest.fixture(scope="module")
def small(server: Server) -> Iterator[CaissonSandbox]:
    spec = sandbox_spec(limits=TransferLimits(max_file_bytes=20, max_total_bytes=30, max_files=3))
    with Client(server.url) as client, CaissonSandbox(spec, client=client) as backend:
        yield backend


def test_a_batch_over_the_count_is_refused_whole(small: CaissonSandbox) -> None:
    files = [(f"/workspace/count{n}", b"x") for n in range(4)]
    answers = small.upload_files(files)
    assert answers == [FileUploadResponse(path, "too_many_files") for path, _ in files]
    assert small.execute("ls").output == "<no output>"
    assert small.download_files([path for path, _ in files]) == [
        FileDownloadResponse(path, None, "too_many_files") for path, _ in files
    ]


def test_a_file_over_its_limit_is_refused_alone(small: CaissonSandbox) -> None:
    answers = small.upload_files([("/workspace/l1", b"x" * 21), ("/workspace/l2", b"x" * 20)])
    assert [answer.error for answer in answers] == ["file_too_large", None]
    assert small.ls("/workspace/l1").error == "Path '/workspace/l1': path_not_found"


def test_a_file_over_the_rest_of_the_total_is_refused_alone(small: CaissonSandbox) -> None:
    sizes = (18, 15, 12)
    answers = small.upload_files([(f"/workspace/t{size}", b"x" * size) for size in sizes])
    assert [answer.error for answer in answers] == [None, "file_too_large", None]


def test_a_download_over_a_limit_is_refused_and_never_cut(small: CaissonSandbox) -> None:
    small.execute("for n in 18 15 12 21; do head -c $n /dev/zero > d$n; done")
    answers = small.download_files([f"/workspace/d{size}" for size in (18, 15, 12)])
    assert [answer.content for answer in answers] == [b"\0" * 18, None, b"\0" * 12]
    assert answers[1].error == "file_too_large"
    assert small.download_files(["/workspace/d21"]) == [
        FileDownloadResponse("/workspace/d21", None, "file_too_large")
    ]


def test_an_unfinished_transfer_is_said(own_server: Server) -> None:
    """The server stands still with the request, and dies."""
    client = Client(own_server.url)
    backend = CaissonSandbox(client=client)
    acquired(backend)
    own_server.process.send_signal(signal.SIGSTOP)
    answers: dict[str, object] = {}

    def upload() -> None:
        answers["up"] = backend.upload_files([("/workspace/a", b"x"), ("/workspace/b", b"y")])

    def download() -> None:
        answers["down"] = backend.download_files(["/workspace/a"])

    threads = [threading.Thread(target=upload), threading.Thread(target=download)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: backend._shared.inside == 2)
    time.sleep(0.5)  # both requests are on their way, which nobody can tell
    own_server.process.kill()
    for thread in threads:
        thread.join()
    said = adapter.UPLOAD_UNFINISHED + adapter.DISCARDED
    assert answers["up"] == [
        FileUploadResponse("/workspace/a", said),
        FileUploadResponse("/workspace/b", said),
    ]
    lost = FileDownloadResponse("/workspace/a", None, adapter.DOWNLOAD_UNFINISHED)
    assert answers["down"] == [lost]
    assert backend.close() is False  # the discarded sandbox is not known to be gone
    start_server(own_server.data, own_server.data.parent / "log").stop()  # ends what it finds


def test_transfers_name_their_errors(backend: CaissonSandbox) -> None:
    backend.execute("mkdir t; echo x > t/secret; chmod 000 t/secret; mkfifo t/fifo")
    paths = ["/none", "/workspace/t", "/workspace/t/secret", "relative", "/workspace/t/fifo"]
    assert [answer.error for answer in backend.download_files(paths)] == [
        "file_not_found",
        "is_directory",
        "permission_denied",
        "invalid_path",
        "invalid_path",
    ]
    uploads = [("relative", b""), ("/workspace/t", b""), ("/etc/x", b""), ("/workspace/ok", b"")]
    answers = backend.upload_files(uploads)
    assert [answer.error for answer in answers] == [
        "invalid_path",
        "is_directory",
        "permission_denied",
        None,
    ]
    assert backend.upload_files([]) == [] and backend.download_files([]) == []
