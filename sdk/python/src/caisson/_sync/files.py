# Made from _async/files.py by tools/unasync.py; change that one.
"""Files of a sandbox, and search in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from .streams import EventStream

if TYPE_CHECKING:
    from .sandbox import Sandbox

# Classes with a method `list` cannot name the type.
Uploads = list[UploadedFile]
Downloads = list[DownloadedFile]


class Watch(EventStream):
    """Changes in a directory; `files.watch` makes it."""

    ended: str | None = None
    """After the last change: whether the directory was removed or moved."""

    def __enter__(self) -> Watch:
        self.open()
        try:
            # The first event says that it stands.
            self.receive()
        except BaseException:
            # There will be no __exit__.
            self._stack.close()
            raise
        return self

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> WatchEvent:
        while self.ended is None:
            sent = self.receive()
            if sent is None:
                lost = error_for("connection_lost", "the watch ended without its last event")
                raise lost from self._broken
            self.ended = _calls.watch_end(sent)
            event = _calls.watch_event(sent)
            if event is not None:
                return event
        raise StopIteration


class Files:
    """`box.files`. Paths are absolute, or relative to the working directory.

    `root="work_dir"` confines a call to what is below the working directory.
    """

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def read(
        self,
        path: str,
        *,
        start: int | None = None,
        length: int | None = None,
        root: Root | None = None,
    ) -> bytes:
        """The file's bytes, or `length` of them from `start`."""
        return self._box.run(lambda box: _calls.read_file(box, path, start, length, root))

    def read_text(self, path: str, *, root: Root | None = None) -> str:
        return (self.read(path, root=root)).decode()

    def lines(
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
        return self._box.run(
            lambda box: _calls.read_lines(
                box, path, offset, limit, max_bytes, max_line_bytes, newline, root
            )
        )

    def write(
        self,
        path: str,
        content: str | bytes | Iterable[bytes],
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
        return self._box.run(
            lambda box: _calls.write_file(
                box, path, content, mode, create_only, parents, if_match, root
            )
        )

    def edit(
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
        return self._box.run(
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

    def stat(
        self,
        path: str,
        *,
        follow: bool = False,
        media_type: bool = False,
        root: Root | None = None,
    ) -> FileEntry:
        """With `media_type` a regular file is looked into: `media_type` and `text` are set."""
        return self._box.run(
            lambda box: _calls.stat_file(box, path, follow, media_type, root)
        )

    def list(
        self,
        path: str,
        *,
        limit: int | None = None,
        after: str | None = None,
        root: Root | None = None,
    ) -> Listing:
        """The entries of a directory (1000), sorted by name, from the one behind `after`."""
        return self._box.run(lambda box: _calls.list_files(box, path, limit, after, root))

    def mkdir(
        self,
        path: str,
        *,
        parents: bool = False,
        mode: str | None = None,
        root: Root | None = None,
    ) -> FileEntry:
        return self._box.run(
            lambda box: _calls.make_directory(box, path, parents, mode, root)
        )

    def move(
        self, source: str, target: str, *, overwrite: bool = False, root: Root | None = None
    ) -> FileEntry:
        return self._box.run(
            lambda box: _calls.move_file(box, source, target, overwrite, root)
        )

    def copy(
        self,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        recursive: bool = False,
        root: Root | None = None,
    ) -> CopiedFiles:
        """Copies a file, or with `recursive` a directory to where nothing is."""
        return self._box.run(
            lambda box: _calls.copy_file(box, source, target, overwrite, recursive, root)
        )

    def remove(
        self,
        path: str,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        root: Root | None = None,
    ) -> bool:
        """Whether there was something. A link is removed, not followed."""
        return self._box.run(
            lambda box: _calls.remove_file(box, path, recursive, missing_ok, root)
        )

    def upload(
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
        return self._box.run(
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

    def download(
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
        return self._box.run(
            lambda box: _calls.download_files(
                box, paths, max_file_bytes, max_total_bytes, max_files, root
            )
        )

    def watch(self, path: str, *, recursive: bool = False, root: Root | None = None) -> Watch:
        """What changes in a directory, with `recursive` below it: use it as `with` and
        iterate. From when the block is entered, every change is yielded, or an overflow."""
        return Watch(self._box, lambda box: _calls.watch_files(box, path, recursive, root))


class Search:
    """`box.search`"""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def glob(self, pattern: str, path: str = ".", **fields: Unpack[GlobFields]) -> GlobResult:
        """Files by pattern: `*`, `?`, `[abc]`, `{a,b}`, `**`. Without a slash in it the pattern
        is for base names, at any depth unless `bare_any_depth` is false."""
        return self._box.run(lambda box: _calls.glob(box, pattern, path, fields))

    def grep(self, pattern: str, path: str = ".", **fields: Unpack[GrepFields]) -> GrepResult:
        """Lines by literal text, or with `regex` by a regular expression; `before` and `after`
        give lines around them, which have `context`."""
        return self._box.run(lambda box: _calls.grep(box, pattern, path, fields))
