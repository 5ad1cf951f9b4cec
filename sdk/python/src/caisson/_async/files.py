"""Files of a sandbox, and search in them."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Unpack

from .._calls import files as _calls
from .._fields import GlobFields, GrepFields, Root
from ..errors import error_for
from ..types import (
    CopiedFiles,
    DownloadedFile,
    EditedFile,
    FileEntry,
    GlobResult,
    GrepResult,
    Lines,
    Listing,
    UploadedFile,
    WatchEvent,
    WrittenFile,
)
from .streams import AsyncEventStream

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

# Classes with a method `list` cannot name the type.
Uploads = list[UploadedFile]
Downloads = list[DownloadedFile]


class AsyncWatch(AsyncEventStream):
    """Changes in a directory; `files.watch` makes it."""

    ended: str | None = None
    """After the last change: whether the directory was removed or moved."""

    async def __aenter__(self) -> AsyncWatch:
        await self.open()
        try:
            # The first event says that it stands.
            await self.receive()
        except BaseException:
            # There will be no __aexit__.
            await self._stack.aclose()
            raise
        return self

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        while self.ended is None:
            sent = await self.receive()
            if sent is None:
                lost = error_for("connection_lost", "the watch ended without its last event")
                raise lost from self._broken
            self.ended = _calls.watch_end(sent)
            event = _calls.watch_event(sent)
            if event is not None:
                return event
        raise StopAsyncIteration


class AsyncFiles:
    """`box.files`. Paths are absolute, or relative to the working directory.

    `root="work_dir"` confines a call to what is below the working directory.
    """

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def read(
        self,
        path: str,
        *,
        start: int | None = None,
        length: int | None = None,
        root: Root | None = None,
    ) -> bytes:
        """The file's bytes, or `length` of them from `start`."""
        return await self._box.run(lambda box: _calls.read_file(box, path, start, length, root))

    async def read_text(self, path: str, *, root: Root | None = None) -> str:
        return (await self.read(path, root=root)).decode()

    async def lines(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: int | None = None,
        max_bytes: int | None = None,
        max_line_bytes: int | None = None,
        newline: Literal["keep"] | None = None,
        root: Root | None = None,
    ) -> Lines:
        """A window of a text file, from the 0-based line `offset`; 2000 lines, 512,000 bytes."""
        return await self._box.run(
            lambda box: _calls.read_lines(
                box, path, offset, limit, max_bytes, max_line_bytes, newline, root
            )
        )

    async def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes] | AsyncIterable[bytes],
        *,
        mode: str | None = None,
        create_only: bool = False,
        parents: bool = False,
        if_match: str | None = None,
        root: Root | None = None,
    ) -> WrittenFile:
        """Creates or replaces a file; readers see the old one or the new one.

        `mode` is like "0644". `create_only` refuses a file that exists, `if_match` one whose
        content has another SHA-256. `parents` makes missing directories.
        """
        return await self._box.run(
            lambda box: _calls.write_file(
                box, path, content, mode, create_only, parents, if_match, root
            )
        )

    async def edit(
        self,
        path: str,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        expected_count: int | None = None,
        if_match: str | None = None,
        newline: Literal["exact", "adapt"] | None = None,
        dry_run: bool = False,
        root: Root | None = None,
    ) -> EditedFile:
        """Replaces a literal text, which must occur once unless `replace_all` or
        `expected_count` say otherwise."""
        return await self._box.run(
            lambda box: _calls.edit_file(
                box,
                path,
                old,
                new,
                replace_all,
                expected_count,
                if_match,
                newline,
                dry_run,
                root,
            )
        )

    async def stat(
        self,
        path: str,
        *,
        follow: bool = False,
        media_type: bool = False,
        root: Root | None = None,
    ) -> FileEntry:
        """With `media_type` a regular file is looked into: `media_type` and `text` are set."""
        return await self._box.run(
            lambda box: _calls.stat_file(box, path, follow, media_type, root)
        )

    async def list(
        self,
        path: str,
        *,
        limit: int | None = None,
        after: str | None = None,
        root: Root | None = None,
    ) -> Listing:
        """The entries of a directory (1000), sorted by name, from the one behind `after`."""
        return await self._box.run(lambda box: _calls.list_files(box, path, limit, after, root))

    async def mkdir(
        self,
        path: str,
        *,
        parents: bool = False,
        mode: str | None = None,
        root: Root | None = None,
    ) -> FileEntry:
        return await self._box.run(
            lambda box: _calls.make_directory(box, path, parents, mode, root)
        )

    async def move(
        self, source: str, target: str, *, overwrite: bool = False, root: Root | None = None
    ) -> FileEntry:
        return await self._box.run(
            lambda box: _calls.move_file(box, source, target, overwrite, root)
        )

    async def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        root: Root | None = None,
    ) -> CopiedFiles:
        """Copies a file, or with `recursive` a directory to where nothing is."""
        return await self._box.run(
            lambda box: _calls.copy_file(box, source, target, overwrite, recursive, root)
        )

    async def remove(
        self,
        path: str,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        root: Root | None = None,
    ) -> bool:
        """Whether there was something. A link is removed, not followed."""
        return await self._box.run(
            lambda box: _calls.remove_file(box, path, recursive, missing_ok, root)
        )

    async def upload(
        self,
        files: Sequence[tuple[str, str | bytes]],
        *,
        mode: str | None = None,
        parents: bool = True,
        max_file_bytes: int | None = None,
        max_total_bytes: int | None = None,
        max_files: int | None = None,
        root: Root | None = None,
    ) -> Uploads:
        """Writes many files in one call: what became of each, in order.

        A batch with too many files is refused whole (`FileTooLargeError`); a file over its limit
        or over what is left of the total is refused alone.
        """
        return await self._box.run(
            lambda box: _calls.upload_files(
                box,
                files,
                mode,
                parents,
                max_file_bytes,
                max_total_bytes,
                max_files,
                root,
            )
        )

    async def download(
        self,
        paths: Sequence[str],
        *,
        max_file_bytes: int | None = None,
        max_total_bytes: int | None = None,
        max_files: int | None = None,
        root: Root | None = None,
    ) -> Downloads:
        """Reads many files in one call: what became of each, in order, by the rules of `upload`.
        A file over a limit is refused, never cut."""
        return await self._box.run(
            lambda box: _calls.download_files(
                box, paths, max_file_bytes, max_total_bytes, max_files, root
            )
        )

    def watch(self, path: str, *, recursive: bool = False, root: Root | None = None) -> AsyncWatch:
        """What changes in a directory, with `recursive` below it: use it as `async with` and
        iterate. From when the block is entered, every change is yielded, or an overflow."""
        return AsyncWatch(self._box, lambda box: _calls.watch_files(box, path, recursive, root))


class AsyncSearch:
    """`box.search`"""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def glob(self, pattern: str, path: str = ".", **fields: Unpack[GlobFields]) -> GlobResult:
        """Files by pattern: `*`, `?`, `[abc]`, `{a,b}`, `**`. Without a slash in it the pattern
        is for base names, at any depth unless `bare_any_depth` is false."""
        return await self._box.run(lambda box: _calls.glob(box, pattern, path, fields))

    async def grep(self, pattern: str, path: str = ".", **fields: Unpack[GrepFields]) -> GrepResult:
        """Lines by literal text, or with `regex` by a regular expression; `before` and `after`
        give lines around them, which have `context`."""
        return await self._box.run(lambda box: _calls.grep(box, pattern, path, fields))
