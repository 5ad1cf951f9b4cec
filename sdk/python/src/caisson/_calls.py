"""Every call of the API as data: what is sent, and how the answer is read.

The clients differ in how they wait, not in what they say, so what is said stands here once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from . import _http
from ._http import Call, encode_json, part
from .errors import CaissonError, error_for
from .types import (
    CopiedFiles,
    Definition,
    DownloadedFile,
    EditedFile,
    Event,
    EventPage,
    ExecEvent,
    ExecGap,
    ExecOutput,
    ExecResult,
    ExecStarted,
    ExecState,
    Explanation,
    FileEntry,
    GlobResult,
    GrepMatch,
    GrepResult,
    Lines,
    Listing,
    Page,
    Run,
    SandboxInfo,
    Session,
    Submitted,
    UploadedFile,
    WrittenFile,
    make,
    raw_bytes,
)

T = TypeVar("T")

_JSON = {"Content-Type": "application/json"}
_STREAM = {**_JSON, "Accept": "text/event-stream"}
_EXEC_GRACE = 60.0  # for a kill that takes its time, beyond a command's own timeout
_TRANSFER_SECONDS = 600.0


def _json(method: str, path: str, body: Mapping[str, Any], parse: Callable[[Any], T]) -> Call[T]:
    return Call(
        method, path, lambda answer: parse(answer.json()), body=encode_json(body), headers=_JSON
    )


def _get(target: str, parse: Callable[[Any], T], /, **query: Any) -> Call[T]:
    return Call("GET", target, lambda answer: parse(answer.json()), query=query)


def _one(cls: type[T]) -> Callable[[Any], T]:
    return lambda data: make(cls, data)


def _page(cls: type[T]) -> Callable[[Any], Page[T]]:
    return lambda data: Page(
        [make(cls, item) for item in data["items"]], data.get("next_cursor") or None
    )


def _with_key(call: Call[T], key: str | None) -> Call[T]:
    if key is None:
        return call
    return replace(call, headers={**call.headers, "Idempotency-Key": key})


# Sandboxes.


def spec_body(
    profile: str | None,
    session_id: str | None,
    network: str | None,
    ttl_ms: int | None,
    env: Mapping[str, str] | None,
    resources: Mapping[str, Any] | None,
    writable_paths: Sequence[str] | None,
) -> dict[str, Any]:
    """The body of `POST /v1/sandboxes` and of its `explain`."""
    body: dict[str, Any] = {
        "profile": profile,
        "session_id": session_id,
        "network": network,
        "ttl_ms": ttl_ms,
        "env": dict(env) if env is not None else None,
        "resources": dict(resources) if resources is not None else None,
        "writable_paths": list(writable_paths) if writable_paths is not None else None,
    }
    return {name: value for name, value in body.items() if value is not None}


def create_sandbox(
    spec: Mapping[str, Any], key: str | None, timeout: float | None = None
) -> Call[SandboxInfo]:
    call = _with_key(_json("POST", "/v1/sandboxes", spec, _one(SandboxInfo)), key)
    return call if timeout is None else replace(call, read_seconds=timeout)


def explain_sandbox(spec: Mapping[str, Any]) -> Call[Explanation]:
    return _json("POST", "/v1/sandboxes:explain", spec, _one(Explanation))


def get_sandbox(sandbox: str) -> Call[SandboxInfo]:
    return _get(f"/v1/sandboxes/{part(sandbox)}", _one(SandboxInfo))


def list_sandboxes(limit: int | None, cursor: str | None) -> Call[Page[SandboxInfo]]:
    return _get("/v1/sandboxes", _page(SandboxInfo), limit=limit, cursor=cursor)


def delete_sandbox(sandbox: str, generation: int | None) -> Call[SandboxInfo]:
    return Call(
        "DELETE",
        f"/v1/sandboxes/{part(sandbox)}",
        lambda answer: make(SandboxInfo, answer.json()),
        query={"generation": generation},
        read_seconds=_http.CLOSE_SECONDS,
    )


# Commands.


def _command_body(
    command: str | Sequence[str],
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    umask: str | None,
    login: bool,
    keep_bytes: int | None,
) -> dict[str, Any]:
    shell = isinstance(command, str)
    return {
        "command": command if shell else None,
        "argv": None if shell else list(command),
        "cwd": cwd,
        "env": dict(env) if env else None,
        "timeout_ms": None if timeout is None else max(1, round(timeout * 1000)),
        "umask": umask,
        "login": True if login else None,
        "keep_bytes": keep_bytes,
    }


def start_exec(
    sandbox: str,
    command: str | Sequence[str],
    cwd: str | None,
    env: Mapping[str, str] | None,
    stdin: str | bytes | None,
    timeout: float | None,
    output_limit_bytes: int | None,
    umask: str | None,
    login: bool,
    keep_bytes: int | None,
    streamed: bool,
) -> Call[ExecResult]:
    if isinstance(stdin, bytes):
        try:
            stdin = stdin.decode()
        except UnicodeDecodeError:
            raise ValueError(
                "stdin must be UTF-8; write other bytes to a file and let the command read it"
            ) from None
    body = {
        **_command_body(command, cwd, env, timeout, umask, login, keep_bytes),
        "stdin": stdin,
        "output_limit_bytes": output_limit_bytes,
    }
    return Call(
        "POST",
        f"/v1/sandboxes/{part(sandbox)}/exec",
        lambda answer: exec_result(answer.json()),
        body=encode_json(body),
        headers=_STREAM if streamed else _JSON,
        read_seconds=None if timeout is None else timeout + _EXEC_GRACE,
    )


def exec_result(data: Mapping[str, Any]) -> ExecResult:
    """The result of a command; also of the `exit` of a stream, which has no output."""
    if "reason" not in data:
        raise no_result()
    truncated = data.get("truncated", {})
    known = {name: value for name, value in data.items() if name not in ("truncated", "kept")}
    if "kept" in data:
        known["stdout_kept_bytes"] = int(data["kept"]["stdout"])
        known["stderr_kept_bytes"] = int(data["kept"]["stderr"])
    known["stdout_raw"] = raw_bytes(data, "stdout")
    known["stderr_raw"] = raw_bytes(data, "stderr")
    known["stdout_truncated"] = bool(truncated.get("stdout"))
    known["stderr_truncated"] = bool(truncated.get("stderr"))
    known.setdefault("id", "")
    return make(ExecResult, known)


def no_result() -> CaissonError:
    return error_for("outcome_unknown", "the server ended its answer without the command's end")


def _execs(sandbox: str, exec_id: str | None = None, call: str | None = None) -> str:
    path = f"/v1/sandboxes/{part(sandbox)}/execs"
    if exec_id is not None:
        path += f"/{part(exec_id)}"
    return path if call is None else f"{path}/{call}"


def exec_state(data: Mapping[str, Any]) -> ExecState:
    ended = data.get("exit")
    return make(ExecState, {**data, "exit": exec_result(ended) if ended else None})


def start_background(
    sandbox: str,
    command: str | Sequence[str],
    exec_id: str | None,
    cwd: str | None,
    env: Mapping[str, str] | None,
    timeout: float | None,
    interactive: bool,
    pty: tuple[int, int] | None,
    umask: str | None,
    login: bool,
    keep_bytes: int | None,
) -> Call[ExecState]:
    body = {
        **_command_body(command, cwd, env, timeout, umask, login, keep_bytes),
        "id": exec_id,
        "interactive": True if interactive else None,
        "pty": None if pty is None else {"rows": pty[0], "cols": pty[1]},
    }
    return _json("POST", _execs(sandbox), body, exec_state)


def list_execs(sandbox: str) -> Call[list[ExecState]]:
    return _get(_execs(sandbox), lambda data: [exec_state(one) for one in data["execs"]])


def get_exec(sandbox: str, exec_id: str) -> Call[ExecState]:
    return _get(_execs(sandbox, exec_id), exec_state)


def delete_exec(sandbox: str, exec_id: str) -> Call[None]:
    return Call("DELETE", _execs(sandbox, exec_id), lambda answer: None, read_seconds=_EXEC_GRACE)


def follow_exec(sandbox: str, exec_id: str, after: int) -> Call[ExecResult]:
    return Call(
        "GET",
        _execs(sandbox, exec_id, "stream"),
        lambda answer: exec_result(answer.json()),
        query={"after": after},
        headers={"Accept": "text/event-stream"},
        read_seconds=_EXEC_GRACE,  # a silent command is heard of every ten seconds
    )


def write_exec(sandbox: str, exec_id: str, data: str | bytes, eof: bool) -> Call[None]:
    return Call(
        "POST",
        _execs(sandbox, exec_id, "stdin"),
        lambda answer: None,
        query={"eof": True if eof else None},
        body=data.encode() if isinstance(data, str) else data,
        headers={"Content-Type": "application/octet-stream"},
        read_seconds=_TRANSFER_SECONDS,
    )


def signal_exec(sandbox: str, exec_id: str, signal: str, tree: bool) -> Call[None]:
    body = {"signal": signal, "scope": "tree" if tree else "leader"}
    return _json("POST", _execs(sandbox, exec_id, "signal"), body, lambda _: None)


def resize_exec(sandbox: str, exec_id: str, rows: int, cols: int) -> Call[None]:
    body = {"rows": rows, "cols": cols}
    return _json("POST", _execs(sandbox, exec_id, "resize"), body, lambda _: None)


def exec_output(
    sandbox: str, exec_id: str, stream: str, offset: int, limit: int | None
) -> Call[bytes]:
    return Call(
        "GET",
        _execs(sandbox, exec_id, "output"),
        lambda answer: answer.content,
        query={"stream": stream, "offset": offset, "limit": limit},
        read_seconds=_TRANSFER_SECONDS,
    )


def exec_event(event: _http.ServerSentEvent) -> ExecEvent | None:
    data = json.loads(event.data)
    match event.name:
        case "started":
            return ExecStarted(data["id"])
        case "stdout" | "stderr":
            return ExecOutput(
                event.name, data["data"], raw_bytes(data, "data"), int(data["offset"])
            )
        case "gap":
            return make(ExecGap, data)
        case "exit":
            return exec_result(data)
    return None


# Files. `root` is "sandbox" (the sandbox's own /) or "work_dir" (only what is below it).


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
        read_seconds=_TRANSFER_SECONDS,
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
        read_seconds=_TRANSFER_SECONDS,
    )


def stat_file(sandbox: str, path: str, follow: bool, root: str | None) -> Call[FileEntry]:
    return _get(
        _files(sandbox, "stat"),
        _one(FileEntry),
        path=path,
        follow=True if follow else None,
        root=root,
    )


def list_files(
    sandbox: str, path: str, limit: int | None, after: str | None, root: str | None
) -> Call[Listing]:
    def parse(data: Any) -> Listing:
        return Listing([make(FileEntry, entry) for entry in data["entries"]], data["truncated"])

    return _get(_files(sandbox, "list"), parse, path=path, limit=limit, after=after, root=root)


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
    return _json("POST", _files(sandbox, "edit"), body, _one(EditedFile))


def make_directory(
    sandbox: str, path: str, parents: bool, mode: str | None, root: str | None
) -> Call[FileEntry]:
    body = {"path": path, "parents": parents, "mode": mode, "root": root}
    return _json("POST", _files(sandbox, "mkdir"), body, _one(FileEntry))


def move_file(
    sandbox: str, source: str, target: str, overwrite: bool, root: str | None
) -> Call[FileEntry]:
    body = {"from": source, "to": target, "overwrite": overwrite, "root": root}
    return _json("POST", _files(sandbox, "move"), body, _one(FileEntry))


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
    return _json("POST", _files(sandbox, "copy"), body, _one(CopiedFiles))


def remove_file(
    sandbox: str, path: str, recursive: bool, missing_ok: bool, root: str | None
) -> Call[bool]:
    body = {"path": path, "recursive": recursive, "missing_ok": missing_ok, "root": root}
    return _json("POST", _files(sandbox, "remove"), body, lambda data: bool(data["removed"]))


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
        read_seconds=_TRANSFER_SECONDS,
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
        headers=_JSON,
        read_seconds=_TRANSFER_SECONDS,
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


# Search.


def glob(
    sandbox: str,
    pattern: str,
    path: str,
    limit: int | None,
    bare_any_depth: bool,
    directories: bool,
    hidden: bool,
    root: str | None,
) -> Call[GlobResult]:
    def parse(data: Any) -> GlobResult:
        matches = [make(FileEntry, entry) for entry in data["matches"]]
        return make(GlobResult, {**data, "matches": matches})

    body = {
        "path": path,
        "pattern": pattern,
        "limit": limit,
        "bare_any_depth": bare_any_depth,
        "directories": directories,
        "hidden": hidden,
        "root": root,
    }
    return _json("POST", f"/v1/sandboxes/{part(sandbox)}/search/glob", body, parse)


def grep(
    sandbox: str,
    pattern: str,
    path: str,
    glob: str | None,
    ignore_case: bool,
    limit: int | None,
    limit_per_file: int | None,
    max_line_bytes: int | None,
    hidden: bool,
    root: str | None,
) -> Call[GrepResult]:
    def parse(data: Any) -> GrepResult:
        matches = [make(GrepMatch, match) for match in data["matches"]]
        return make(GrepResult, {**data, "matches": matches})

    body = {
        "path": path,
        "pattern": pattern,
        "glob": glob,
        "ignore_case": ignore_case,
        "limit": limit,
        "limit_per_file": limit_per_file,
        "max_line_bytes": max_line_bytes,
        "hidden": hidden,
        "root": root,
    }
    return _json("POST", f"/v1/sandboxes/{part(sandbox)}/search/grep", body, parse)


# Definitions: `kind` is "agents" or "providers".


def create_definition(kind: str, name: str, fields: Mapping[str, Any]) -> Call[Definition]:
    return _json("POST", f"/v1/{kind}", {"name": name, **fields}, _one(Definition))


def put_definition(
    kind: str, name: str, fields: Mapping[str, Any], revision: int | None
) -> Call[Definition]:
    call = _json("PUT", f"/v1/{kind}/{part(name)}", fields, _one(Definition))
    if revision is None:
        return call
    return replace(call, headers={**call.headers, "If-Match": f'"{revision}"'})


def get_definition(kind: str, name: str) -> Call[Definition]:
    return _get(f"/v1/{kind}/{part(name)}", _one(Definition))


def list_definitions(kind: str, limit: int | None, cursor: str | None) -> Call[Page[Definition]]:
    return _get(f"/v1/{kind}", _page(Definition), limit=limit, cursor=cursor)


def delete_definition(kind: str, name: str, revision: int) -> Call[None]:
    return Call(
        "DELETE",
        f"/v1/{kind}/{part(name)}",
        lambda answer: None,
        headers={"If-Match": f'"{revision}"'},
    )


# Sessions, events, runs.


def create_session(
    agent: str, title: str | None, metadata: Mapping[str, Any] | None, key: str | None
) -> Call[Session]:
    body = {"agent": agent, "title": title, "metadata": metadata}
    return _with_key(_json("POST", "/v1/sessions", body, _one(Session)), key)


def get_session(session: str) -> Call[Session]:
    return _get(f"/v1/sessions/{part(session)}", _one(Session))


def list_sessions(limit: int | None, cursor: str | None) -> Call[Page[Session]]:
    return _get("/v1/sessions", _page(Session), limit=limit, cursor=cursor)


def send_message(
    session: str, content: Any, multitask: str | None, key: str | None
) -> Call[Submitted]:
    def parse(data: Any) -> Submitted:
        return make(Submitted, {**data, "run": make(Run, data["run"])})

    body = {"content": content, "multitask": multitask}
    path = f"/v1/sessions/{part(session)}/messages"
    return _with_key(_json("POST", path, body, parse), key)


def list_runs(session: str, limit: int | None, cursor: str | None) -> Call[Page[Run]]:
    return _get(f"/v1/sessions/{part(session)}/runs", _page(Run), limit=limit, cursor=cursor)


def read_events(
    session: str,
    after: int,
    limit: int | None,
    visibility: str | None,
    run: str | None,
) -> Call[EventPage]:
    def parse(data: Any) -> EventPage:
        return EventPage([make(Event, item) for item in data["items"]], data["last_seq"])

    return _get(
        f"/v1/sessions/{part(session)}/events",
        parse,
        after=after,
        limit=limit,
        visibility=visibility,
        run=run,
    )


def stream_events(
    session: str, after: int, until_end_of: str | None, visibility: str | None
) -> Call[None]:
    return Call(
        "GET",
        f"/v1/sessions/{part(session)}/stream",
        lambda answer: None,
        query={"after": after, "until_end_of": until_end_of, "visibility": visibility},
        headers={"Accept": "text/event-stream"},
        read_seconds=60.0,  # the server sends a comment every 15 seconds
    )


def log_event(event: _http.ServerSentEvent) -> Event:
    return make(Event, json.loads(event.data))


def get_run(run: str) -> Call[Run]:
    return _get(f"/v1/runs/{part(run)}", _one(Run))


def cancel_run(run: str) -> Call[Run]:
    return _json("POST", f"/v1/runs/{part(run)}/cancel", {}, _one(Run))
