"""Files and search."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator

import pytest

from caisson import (
    AsyncClient,
    CaissonError,
    Client,
    EditError,
    FileAlreadyExistsError,
    FileChange,
    FileChanges,
    FileError,
    FileMissingError,
    FileTooLargeError,
    PreconditionFailedError,
    Sandbox,
    SearchError,
)
from real_server import Server


@pytest.fixture(scope="module")
def box(server: Server) -> Iterator[Sandbox]:
    with Client(server.url) as client, client.sandbox() as box:
        yield box


def test_bytes_are_written_and_read_whole_or_in_part(box: Sandbox) -> None:
    content = bytes(range(256)) * 1000
    written = box.files.write("bytes/all.bin", content, parents=True, mode="0600")
    assert written.created and written.size_bytes == len(content)
    assert written.sha256 == hashlib.sha256(content).hexdigest()
    assert box.files.read("bytes/all.bin") == content
    assert box.files.read("bytes/all.bin", start=255, length=3) == b"\xff\x00\x01"
    assert box.files.read("bytes/all.bin", start=len(content) - 2) == b"\xfe\xff"
    assert box.exec("stat -c %a bytes/all.bin").stdout == "600\n"
    with pytest.raises(ValueError, match="range"):
        box.files.read("bytes/all.bin", start=-1)


def test_a_write_can_have_conditions(box: Sandbox) -> None:
    first = box.files.write("cond", "one")
    with pytest.raises(FileAlreadyExistsError):
        box.files.write("cond", "two", create_only=True)
    with pytest.raises(PreconditionFailedError):
        box.files.write("cond", "two", if_match="0" * 64)
    assert not box.files.write("cond", "two", if_match=first.sha256).created
    assert box.files.read_text("cond") == "two"
    with pytest.raises(FileMissingError):
        box.files.write("no/such/dir/f", "x")


def test_content_may_come_in_pieces(box: Sandbox) -> None:
    box.files.write("pieces", (b"%d\n" % n for n in range(100_000)))
    assert box.exec("wc -l < pieces; tail -n 1 pieces").stdout == "100000\n99999\n"


async def test_content_may_come_in_pieces_asynchronously(server: Server, box: Sandbox) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async with AsyncClient(server.url) as client:
        other = client.sandboxes.attach(box.id or "")
        await other.files.write("async-pieces", pieces())
        assert await other.files.read("async-pieces") == b"ab"
    with pytest.raises(TypeError, match="AsyncClient"):
        box.files.write("async-pieces", pieces())  # type: ignore[arg-type]


def test_names_are_what_they_are(box: Sandbox) -> None:
    names = ["a b", "new\nline", "-rf", "q\"'$x", "é", "e\u0301", "100%+1&x=#?", "n" * 255]
    for name in names:
        box.files.write(f"names/{name}", name, parents=True)
        assert box.files.read_text(f"names/{name}") == name
    listing = box.files.list("names")
    assert {entry.name for entry in listing.entries} == set(names) and not listing.truncated
    page = box.files.list("names", limit=3)
    assert page.truncated and len(page.entries) == 3
    rest = box.files.list("names", after=page.entries[-1].name)
    assert len(rest.entries) == len(names) - 3
    with pytest.raises(FileError):
        box.files.write("names/" + "n" * 256, "")


def test_lines_come_in_windows(box: Sandbox) -> None:
    box.files.write("lines", "".join(f"row {n}\r\n" for n in range(10)))
    window = box.files.lines("lines", offset=2, limit=3)
    assert window.text == "row 2\nrow 3\nrow 4"
    assert (window.start_line, window.end_line, window.next_offset) == (3, 5, 5)
    assert window.total_lines == 10
    assert box.files.lines("lines", offset=9).next_offset is None
    assert box.files.lines("lines", limit=1, newline="keep").text == "row 0\r"
    with pytest.raises(FileError) as caught:
        box.files.lines("lines", offset=10)
    assert caught.value.code == "offset_past_end"
    box.files.write("binary", b"\0")
    with pytest.raises(FileError, match="not_text"):
        box.files.lines("binary")


def test_edits_are_literal_and_counted(box: Sandbox) -> None:
    new = "$& $1 $$ \\0 \\1 %s {0}"
    box.files.write("edit", "price: P\r\nP")
    with pytest.raises(EditError, match="multiple_occurrences"):
        box.files.edit("edit", "P", new)
    with pytest.raises(EditError, match="string_not_found"):
        box.files.edit("edit", "Q", new)
    dry = box.files.edit("edit", "P", "-", replace_all=True, dry_run=True)
    assert dry.count == 2 and dry.diff is not None and "+price: -" in dry.diff
    assert box.files.edit("edit", "P\nP", new).count == 1
    assert box.files.read("edit") == f"price: {new}".encode()


def test_directories_are_made_moved_copied_and_removed(box: Sandbox) -> None:
    assert box.files.mkdir("d/e", parents=True).is_dir
    box.files.write("d/e/f", "x")
    assert box.files.move("d/e/f", "d/g").path.endswith("d/g")
    box.files.write("d/h", "y")
    with pytest.raises(FileError):
        box.files.move("d/h", "d/g")
    box.files.move("d/h", "d/g", overwrite=True)
    assert box.files.read("d/g") == b"y"
    box.exec("ln -s g d/link").check()
    assert box.files.stat("d/link").type == "symlink" and box.files.stat("d/link").target == "g"
    assert box.files.stat("d/link", follow=True).type == "file"
    looked = box.files.stat("d/link", follow=True, media_type=True)
    assert (looked.media_type, looked.text) == ("text/plain", True)
    with pytest.raises(FileError, match="is_directory"):
        box.files.remove("d")
    assert box.files.remove("d", recursive=True) is True
    assert box.files.remove("d", missing_ok=True) is False


def test_trees_are_copied(box: Sandbox) -> None:
    box.files.write("tree/a/b", "x", parents=True)
    box.files.copy("tree/a/b", "tree/c")
    assert box.files.read("tree/c") == b"x"
    copied = box.files.copy("tree", "forest", recursive=True)
    assert (copied.files, copied.size_bytes) == (2, 2)
    assert box.files.read("forest/a/b") == b"x"
    with pytest.raises(FileError):
        box.files.copy("tree/a/b", "tree/c")
    box.files.copy("tree/a/b", "tree/c", overwrite=True)


def test_a_root_confines(box: Sandbox) -> None:
    assert box.files.read("/etc/passwd")
    with pytest.raises(FileError) as caught:
        box.files.read("../etc/passwd", root="work_dir")
    assert caught.value.code in ("outside_root", "invalid_path")


def test_many_files_go_in_one_call(box: Sandbox) -> None:
    big = bytes(range(256)) * 1000
    results = box.files.upload(
        [("many/a", "text"), ("many/b", big), ("/etc/c", b"no"), ("many/empty", b"")]
    )
    assert [result.path for result in results] == ["many/a", "many/b", "/etc/c", "many/empty"]
    assert [result.code for result in results][:2] == [None, None]
    assert not results[2].ok and results[2].message and results[3].size_bytes == 0
    files = box.files.download(["many/b", "many/none", "many/empty", "many", "many/a"])
    assert [file.content for file in files] == [big, None, b"", None, b"text"]
    assert [file.code for file in files] == [None, "file_not_found", None, "is_directory", None]
    assert files[0].mode == "0644"


def test_batches_have_limits(box: Sandbox) -> None:
    files = [(f"cap/{n}", b"x" * n) for n in (10, 30, 15, 5)]
    results = box.files.upload(files, max_file_bytes=20, max_total_bytes=20)
    assert [result.code for result in results] == [None, "file_too_large", "file_too_large", None]
    with pytest.raises(FileTooLargeError, match="too_many_files"):
        box.files.upload(files, max_files=3)
    box.files.upload(files)
    paths = [path for path, _ in files]
    got = box.files.download(paths, max_file_bytes=20, max_total_bytes=20)
    assert [file.code for file in got] == [None, "file_too_large", "file_too_large", None]
    with pytest.raises(FileTooLargeError, match="too_many_files"):
        box.files.download(paths, max_files=3)


def test_a_sandbox_has_caps_of_its_own_in_each_direction(server: Server) -> None:
    caps = {"in": {"max_files": 2}, "out": {"max_file_bytes": 20}}
    with Client(server.url) as client:
        with client.sandbox(transfer=caps) as box:
            box.acquire()
            assert box.info is not None and box.info.spec["transfer"]["in"]["max_files"] == 2
            with pytest.raises(FileTooLargeError, match="too_many_files"):
                box.files.upload([(f"{n}", b"") for n in range(3)])
            with pytest.raises(CaissonError, match="transfer_limits_not_permitted"):
                box.files.upload([("1", b"")], max_files=3)
            box.files.upload([("1", b"x" * 21), ("2", b"x" * 20)])
            assert [file.code for file in box.files.download(["1", "2"])] == [
                "file_too_large",
                None,
            ]
        caps["out"]["max_files"] = 257
        refused = client.sandboxes.explain(transfer=caps)
        assert (refused.allowed, refused.code) == (False, "transfer_limits_not_permitted")
        with pytest.raises(CaissonError, match=r"transfer\.out\.max_files"):
            client.sandboxes.create(transfer=caps)


def test_files_are_found_by_name_and_by_text(box: Sandbox) -> None:
    for path in ("find/a.py", "find/sub/b.py", "find/.hidden.py", "find/c.txt"):
        box.files.write(path, f"in {path}\nneedle (x)*\n", parents=True)

    def names(*args: object, **options: object) -> list[str]:
        return [entry.path for entry in box.search.glob(*args, **options).matches]  # type: ignore

    assert names("*.py", "find") == ["find/a.py", "find/sub/b.py"]
    assert names("*.py", "find", bare_any_depth=False) == ["find/a.py"]
    assert names(".*", "find") == ["find/.hidden.py"]
    assert names("*", "find", directories=True, bare_any_depth=False) == [
        "find/a.py",
        "find/c.txt",
        "find/sub",
    ]
    limited = box.search.glob("*", "find", limit=1)
    assert limited.truncated and limited.reason == "limit"
    with pytest.raises(SearchError):
        box.search.glob("../*", "find")

    found = box.search.grep("needle (x)*", "find", glob="*.py")
    assert [(match.path, match.line, match.text) for match in found.matches] == [
        ("find/.hidden.py", 2, "needle (x)*"),
        ("find/a.py", 2, "needle (x)*"),
        ("find/sub/b.py", 2, "needle (x)*"),
    ]
    assert box.search.grep("NEEDLE", "find").matches == []
    assert len(box.search.grep("NEEDLE", "find", ignore_case=True).matches) == 4
    assert box.search.grep("needle", "find", limit=2).truncated


def test_a_contract_of_glob_is_chosen_by_parameters(box: Sandbox) -> None:
    for path in ("rules/a.py", "rules/.git/b.py", "rules/.c.py", "rules/sub/d.py"):
        box.files.write(path, "", parents=True)

    def names(pattern: str, **options: bool) -> list[str]:
        found = box.search.glob(pattern, "rules", **options)  # type: ignore[arg-type]
        return [entry.path for entry in found.matches]

    assert names("*.py", bare_dot_directories=True, relative=True) == [
        ".git/b.py",
        "a.py",
        "sub/d.py",
    ]
    assert names("*.py", hidden=True, relative=True) == [".c.py", ".git/b.py", "a.py", "sub/d.py"]
    assert names("*", bare_any_depth=False, directories=True, files_only=True) == [
        "rules/a.py",
        "rules/sub",
    ]


def test_lines_are_found_by_regular_expression_with_lines_around_them(box: Sandbox) -> None:
    box.files.write("log", "start\nerror 12\nmiddle\nwarn 7\nend\n")
    found = box.search.grep(r"^(error|warn) \d+$", "log", regex=True, before=1, after=1)
    assert [(match.line, match.text, match.context) for match in found.matches] == [
        (1, "start", True),
        (2, "error 12", False),
        (3, "middle", True),
        (4, "warn 7", False),
        (5, "end", True),
    ]
    assert box.search.grep(r"^(error|warn) \d+$", "log").matches == []  # it is text then
    with pytest.raises(SearchError):
        box.search.grep("(", "log", regex=True)


def test_changes_are_told_while_a_directory_is_watched(box: Sandbox) -> None:
    box.files.mkdir("watched")
    with box.files.watch("watched", recursive=True) as watch:
        box.files.write("watched/new/file", "x", parents=True)
        changes: list[FileChange] = []
        for event in watch:
            assert isinstance(event, FileChanges)
            changes += event.changes
            if any(change.path == "watched/new/file" for change in changes):
                break
        assert FileChange("watched/new", "created", True) in changes
        box.files.remove("watched", recursive=True)
        rest = [change for event in watch for change in getattr(event, "changes", [])]
        assert FileChange("watched/new/file", "removed", False) in rest
        assert watch.ended == "removed"
    with pytest.raises(FileMissingError), box.files.watch("watched"):
        pass


async def test_changes_are_told_asynchronously(server: Server, box: Sandbox) -> None:
    async with AsyncClient(server.url) as client:
        other = client.sandboxes.attach(box.id or "")
        async with other.files.watch(".") as watch:
            await other.files.write("told", "x")
            event = await anext(watch)
            assert isinstance(event, FileChanges)
            assert "told" in [change.path for change in event.changes]
            assert watch.ended is None  # leaving it ends it
