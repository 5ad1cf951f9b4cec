"""Files and search. `root` is "sandbox" (its own /) or "work_dir" (only what is below that)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx

from .. import _http
from .._fields import GlobFields, GrepFields
from .._http import Call, ServerSentEvent, encode_json, part
from ..errors import error_for
from ..types import (
    CopiedFiles,
    DownloadedFile,
    EditedFile,
    FileChange,
    FileChanges,
    FileEntry,
    GlobResult,
    GrepMatch,
    GrepResult,
    Lines,
    Listing,
    UploadedFile,
    WatchEvent,
    WatchOverflow,
    WrittenFile,
    make,
)
from .common import JSON, TRANSFER_SECONDS, get_call, json_call, one

_WATCH_SILENCE = 60.0  # a quiet directory is heard of every ten seconds


def _files(sandbox: str, call: str) -> str:
    return f"/v1/sandboxes/{part(sandbox)}/files/{call}"


def read_file(
    sandbox: str, path: str, start: int | None, length: int | None, root: str | None
) -> Call[bytes]:
    headers = {}
    if start is not None or length is not None:
        first = start or 0
        if first < 0 or (length is not None and length < 1):
            raise ValueError("a range needs start >= 0 and length >= 1")
        last = "" if length is None else str(first + length - 1)
        headers["Range"] = f"bytes={first}-{last}"
    return Call(
        "GET",
        _files(sandbox, "content"),
        lambda answer: answer.content,
        query={"path": path, "root": root},
        headers=headers,
        read_seconds=TRANSFER_SECONDS,
    )


def read_lines(
    sandbox: str,
    path: str,
    offset: int,
    limit: int | None,
    max_bytes: int | None,
    max_line_bytes: int | None,
    newline: str | None,
    root: str | None,
) -> Call[Lines]:
    def parse(answer: httpx.Response) -> Lines:
        meta = json.loads(answer.headers["Caisson-Meta"])
        return make(Lines, {**meta, "text": answer.content.decode()})

    query = {
        "path": path,
        "offset": offset,
        "limit": limit,
        "max_bytes": max_bytes,
        "max_line_bytes": max_line_bytes,
        "newline": newline,
        "root": root,
    }
    return Call("GET", _files(sandbox, "lines"), parse, query=query)


def write_file(
    sandbox: str,
    path: str,
    content: str | bytes | Iterable[bytes] | AsyncIterable[bytes],
    mode: str | None,
    create_only: bool,
    parents: bool,
    if_match: str | None,
    root: str | None,
) -> Call[WrittenFile]:
    query = {
        "path": path,
        "mode": mode,
        "create_only": True if create_only else None,
        "parents": True if parents else None,
        "if_match": if_match,
        "root": root,
    }
    return Call(
        "PUT",
        _files(sandbox, "content"),
        lambda answer: make(WrittenFile, answer.json()),
        query=query,
        body=content.encode() if isinstance(content, str) else content,
        headers={"Content-Type": "application/octet-stream"},
        read_seconds=TRANSFER_SECONDS,
    )


def stat_file(
    sandbox: str, path: str, follow: bool, media_type: bool, root: str | None
) -> Call[FileEntry]:
    return get_call(
        _files(sandbox, "stat"),
        one(FileEntry),
        path=path,
        follow=True if follow else None,
        media_type=True if media_type else None,
        root=root,
    )


def list_files(
    sandbox: str, path: str, limit: int | None, after: str | None, root: str | None
) -> Call[Listing]:
    def parse(data: Any) -> Listing:
        return Listing([make(FileEntry, entry) for entry in data["entries"]], data["truncated"])

    return get_call(_files(sandbox, "list"), parse, path=path, limit=limit, after=after, root=root)


def edit_file(
    sandbox: str,
    path: str,
    old: str,
    new: str,
    replace_all: bool,
    expected_count: int | None,
    if_match: str | None,
    newline: str | None,
    dry_run: bool,
    root: str | None,
) -> Call[EditedFile]:
    body = {
        "path": path,
        "old": old,
        "new": new,
        "replace_all": True if replace_all else None,
        "expected_count": expected_count,
        "if_match": if_match,
        "newline": newline,
        "dry_run": True if dry_run else None,
        "root": root,
    }
    return json_call("POST", _files(sandbox, "edit"), body, one(EditedFile))


def make_directory(
    sandbox: str, path: str, parents: bool, mode: str | None, root: str | None
) -> Call[FileEntry]:
    body = {"path": path, "parents": parents, "mode": mode, "root": root}
    return json_call("POST", _files(sandbox, "mkdir"), body, one(FileEntry))


def move_file(
    sandbox: str, source: str, target: str, overwrite: bool, root: str | None
) -> Call[FileEntry]:
    body = {"from": source, "to": target, "overwrite": overwrite, "root": root}
    return json_call("POST", _files(sandbox, "move"), body, one(FileEntry))


def copy_file(
    sandbox: str, source: str, target: str, overwrite: bool, recursive: bool, root: str | None
) -> Call[CopiedFiles]:
    body = {
        "from": source,
        "to": target,
        "overwrite": overwrite,
        "recursive": recursive,
        "root": root,
    }
    return json_call("POST", _files(sandbox, "copy"), body, one(CopiedFiles))


def remove_file(
    sandbox: str, path: str, recursive: bool, missing_ok: bool, root: str | None
) -> Call[bool]:
    body = {"path": path, "recursive": recursive, "missing_ok": missing_ok, "root": root}
    return json_call("POST", _files(sandbox, "remove"), body, lambda data: bool(data["removed"]))


def _upload_records(files: Iterable[tuple[str, str | bytes]], mode: str | None) -> Iterator[bytes]:
    for path, content in files:
        head = encode_json({"path": path, "mode": mode})
        yield _http.record(_http.RECORD_FILE, head)
        data = memoryview(content.encode() if isinstance(content, str) else content)
        for at in range(0, len(data), _http.RECORD_MAX):
            piece = data[at : at + _http.RECORD_MAX]
            yield _http.record(_http.RECORD_BYTES, bytes(piece), at)


def upload_files(
    sandbox: str,
    files: Sequence[tuple[str, str | bytes]],
    mode: str | None,
    parents: bool,
    max_file_bytes: int | None,
    max_total_bytes: int | None,
    max_files: int | None,
    root: str | None,
) -> Call[list[UploadedFile]]:
    query = {
        "root": root,
        "parents": True if parents else None,
        "max_file_bytes": max_file_bytes,
        "max_total_bytes": max_total_bytes,
        "max_files": max_files,
    }
    return Call(
        "POST",
        _files(sandbox, "upload"),
        lambda answer: [make(UploadedFile, one) for one in answer.json()["results"]],
        query=query,
        body=_upload_records(files, mode),
        headers={"Content-Type": "application/vnd.caisson.records"},
        read_seconds=TRANSFER_SECONDS,
    )


def download_files(
    sandbox: str,
    paths: Sequence[str],
    max_file_bytes: int | None,
    max_total_bytes: int | None,
    max_files: int | None,
    root: str | None,
) -> Call[list[DownloadedFile]]:
    body = {
        "paths": list(paths),
        "max_file_bytes": max_file_bytes,
        "max_total_bytes": max_total_bytes,
        "max_files": max_files,
        "root": root,
    }
    return Call(
        "POST",
        _files(sandbox, "download"),
        lambda answer: _downloaded(answer.content),
        body=encode_json(body),
        headers=JSON,
        read_seconds=TRANSFER_SECONDS,
    )


def _downloaded(content: bytes) -> list[DownloadedFile]:
    files: list[DownloadedFile] = []
    head: Mapping[str, Any] | None = None
    data = bytearray()
    for kind, payload in _http.RecordParser().feed(content):
        if kind == _http.RECORD_BYTES:
            data += payload
            continue
        # A failure after all bytes of a file is the next one's; before, it is that file's end.
        if head is not None and len(data) == head["size_bytes"]:
            files.append(DownloadedFile(head["path"], bytes(data), head.get("mode")))
        if kind == _http.RECORD_FAILED:
            files.append(make(DownloadedFile, json.loads(payload)))
        head = json.loads(payload) if kind == _http.RECORD_FILE else None
        data.clear()
        if kind == _http.RECORD_END:
            return files
    raise error_for("connection_lost", "the server ended its answer before the last file")


def watch_files(sandbox: str, path: str, recursive: bool, root: str | None) -> Call[None]:
    return Call(
        "GET",
        _files(sandbox, "watch"),
        lambda answer: None,
        query={"path": path, "recursive": True if recursive else None, "root": root},
        headers={"Accept": "text/event-stream"},
        read_seconds=_WATCH_SILENCE,
    )


def watch_event(event: ServerSentEvent) -> WatchEvent | None:
    data = json.loads(event.data)
    match event.name:
        case "changes":
            return FileChanges([make(FileChange, change) for change in data["changes"]])
        case "overflow":
            return make(WatchOverflow, data)
    return None


def watch_end(event: ServerSentEvent) -> str | None:
    """Why it is the last one; None of the others."""
    return str(json.loads(event.data)["reason"]) if event.name == "end" else None


def glob(sandbox: str, pattern: str, path: str, fields: GlobFields) -> Call[GlobResult]:
    def parse(data: Any) -> GlobResult:
        matches = [make(FileEntry, entry) for entry in data["matches"]]
        return make(GlobResult, {**data, "matches": matches})

    body = {**fields, "path": path, "pattern": pattern}
    return json_call("POST", f"/v1/sandboxes/{part(sandbox)}/search/glob", body, parse)


def grep(sandbox: str, pattern: str, path: str, fields: GrepFields) -> Call[GrepResult]:
    def parse(data: Any) -> GrepResult:
        matches = [make(GrepMatch, match) for match in data["matches"]]
        return make(GrepResult, {**data, "matches": matches})

    body = {**fields, "path": path, "pattern": pattern}
    return json_call("POST", f"/v1/sandboxes/{part(sandbox)}/search/grep", body, parse)
