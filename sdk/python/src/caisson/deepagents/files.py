"""Files, one at a time."""

from __future__ import annotations

import base64
import posixpath
import re
from datetime import UTC, datetime
from typing import Any

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    FileInfo,
    LsResult,
    ReadResult,
    WriteResult,
)

from ..errors import EditError, FileError, InvalidRequestError
from ..types import FileEntry
from .operation import Operation, Steps
from .sentences import NOTE_PREFIX
from .spec import SandboxSpec

_PREVIEW_BYTES = 512_000
_LIST_PAGE = 10_000
# What a model can look at only as an attachment, whatever bytes the file has.
_MEDIA = frozenset(
    ".png .jpg .jpeg .webp .gif .heic .heif .mp4 .mpeg .mpg .mov .avi .flv .webm .wmv .3gpp .mkv "
    ".wav .mp3 .aiff .aac .ogg .flac .pdf .ppt .pptx".split()
)


def file_info(path: str, entry: FileEntry) -> FileInfo:
    info = FileInfo(path=path)
    if entry.type is not None:
        info["is_dir"] = entry.is_dir
    if entry.size_bytes is not None:
        info["size"] = entry.size_bytes
    if entry.modified_at_ms is not None:
        when = datetime.fromtimestamp(entry.modified_at_ms / 1000, UTC)
        info["modified_at"] = when.isoformat()
    return info


def ls(spec: SandboxSpec, path: str) -> Operation[LsResult]:
    full = spec.absolute(path)

    def steps() -> Steps[LsResult]:
        found: list[FileInfo] = []
        after: str | None = None
        while True:

            def page(box: Any, after: str | None = after) -> Any:
                return box.files.list(full, limit=_LIST_PAGE, after=after)

            try:
                listing = yield page
            except (FileError, InvalidRequestError) as error:
                code = "path_not_found" if error.code == "file_not_found" else error.code
                return LsResult(error=f"Path '{path}': {code}")
            for entry in listing.entries:
                found.append(file_info(posixpath.join(full, entry.name), entry))
            if not listing.truncated or not listing.entries:
                return LsResult(entries=found)
            after = listing.entries[-1].name

    return Operation(steps(), lambda sentence: LsResult(error=sentence))


def read(spec: SandboxSpec, path: str, offset: int, limit: int) -> Operation[ReadResult]:
    full = spec.absolute(path)
    first = max(0, offset)
    is_media = posixpath.splitext(full)[1].lower() in _MEDIA

    def preview() -> Steps[ReadResult]:
        entry = yield lambda box: box.files.stat(full, follow=True)
        if entry.type == "file" and entry.size_bytes == 0:
            return ReadResult(file_data={"content": "", "encoding": "utf-8"})
        # One byte more than fits tells that it does not, whatever happened since.
        content = yield lambda box: box.files.read(full, length=_PREVIEW_BYTES + 1)
        if len(content) > _PREVIEW_BYTES:
            return ReadResult(
                error=f"File '{path}': Binary file exceeds maximum preview size of "
                f"{_PREVIEW_BYTES} bytes"
            )
        text = base64.b64encode(content).decode()
        return ReadResult(file_data={"content": text, "encoding": "base64"})

    def page() -> Steps[ReadResult]:
        asked = limit > 0
        lines = yield lambda box: box.files.lines(
            full,
            offset=first if asked else 0,
            limit=limit if asked else 1,
            max_bytes=_PREVIEW_BYTES,
        )
        if lines.end_line < lines.start_line:  # an empty file
            return ReadResult(file_data={"content": "", "encoding": "utf-8"})
        if not asked:
            nothing: ReadResult = ReadResult(
                file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True
            )
            return nothing
        text = lines.text
        if lines.cut:
            text += f"\n{NOTE_PREFIX}line {lines.end_line} is longer than a page and was cut"
        return ReadResult(
            file_data={"content": text, "encoding": "utf-8"},
            total_lines=lines.total_lines,
            start_line=lines.start_line,
            end_line=lines.end_line,
            next_offset=None if lines.next_offset is None else lines.end_line,
        )

    def steps() -> Steps[ReadResult]:
        try:
            if is_media:
                return (yield from preview())
            try:
                return (yield from page())
            except FileError as error:
                if error.code != "not_text":
                    raise
            return (yield from preview())
        except (FileError, InvalidRequestError) as error:
            if error.code == "offset_past_end":
                total = re.search(r"\((\d+) lines\)", error.detail)
                length = f" ({total[1]} lines)" if total else ""
                return ReadResult(
                    error=f"File '{path}': Line offset {first} exceeds file length{length}"
                )
            return ReadResult(error=f"File '{path}': {error.code}")

    return Operation(steps(), lambda sentence: ReadResult(error=sentence))


def write(spec: SandboxSpec, path: str, content: str, legacy: bool) -> Operation[WriteResult]:
    full = spec.absolute(path)

    def steps() -> Steps[WriteResult]:
        try:
            yield lambda box: box.files.write(full, content, parents=True, create_only=legacy)
        except (FileError, InvalidRequestError) as error:
            what = "already exists" if error.code == "file_exists" else error.code
            return WriteResult(error=f"File '{path}': {what}")
        return WriteResult(path=path)

    return Operation(steps(), lambda sentence: WriteResult(error=sentence), changes=True)


def edit(
    spec: SandboxSpec, path: str, old: str, new: str, replace_all: bool
) -> Operation[EditResult]:
    full = spec.absolute(path)
    words = {
        "file_not_found": "not found",
        "string_not_found": "the text to replace was not found",
        "multiple_occurrences": "the text to replace occurs multiple times; give more of its "
        "surroundings, or replace_all",
    }

    def steps() -> Steps[EditResult]:
        if not old:
            return EditResult(error=f"File '{path}': the text to replace is empty")
        try:
            edited = yield lambda box: box.files.edit(full, old, new, replace_all=replace_all)
        except (EditError, FileError, InvalidRequestError) as error:
            return EditResult(error=f"File '{path}': {words.get(error.code, error.code)}")
        return EditResult(path=path, occurrences=edited.count)

    return Operation(steps(), lambda sentence: EditResult(error=sentence), changes=True)


def delete(spec: SandboxSpec, path: str) -> Operation[DeleteResult]:
    full = spec.absolute(path)

    def steps() -> Steps[DeleteResult]:
        try:
            yield lambda box: box.files.remove(full, recursive=True)
        except (FileError, InvalidRequestError) as error:
            what = "not found" if error.code == "file_not_found" else error.code
            return DeleteResult(error=f"Path '{path}': {what}")
        return DeleteResult(path=path)

    return Operation(steps(), lambda sentence: DeleteResult(error=sentence), changes=True)
