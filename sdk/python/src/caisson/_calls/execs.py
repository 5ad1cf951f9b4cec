"""Commands: run for their caller, or started to live on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .._fields import CommandFields
from .._http import Call, ServerSentEvent, encode_json, part
from ..errors import CaissonError, error_for
from ..types import (
    ExecEvent,
    ExecGap,
    ExecOutput,
    ExecResult,
    ExecStarted,
    ExecState,
    make,
    raw_bytes,
)
from .common import JSON, STREAM, TRANSFER_SECONDS, get_call, json_call

_EXEC_GRACE = 60.0  # for a kill that takes its time, beyond a command's own timeout


def _command_body(command: str | Sequence[str], fields: CommandFields) -> dict[str, Any]:
    shell = isinstance(command, str)
    body: dict[str, Any] = {name: value for name, value in fields.items() if name != "timeout"}
    body["command"] = command if shell else None
    body["argv"] = None if shell else list(command)
    body["env"] = dict(fields.get("env") or {}) or None
    timeout = fields.get("timeout")
    body["timeout_ms"] = None if timeout is None else max(1, round(timeout * 1000))
    return body


def start_exec(
    sandbox: str,
    command: str | Sequence[str],
    stdin: str | bytes | None,
    output_limit_bytes: int | None,
    streamed: bool,
    fields: CommandFields,
) -> Call[ExecResult]:
    if isinstance(stdin, bytes):
        try:
            stdin = stdin.decode()
        except UnicodeDecodeError:
            raise ValueError(
                "stdin must be UTF-8; write other bytes to a file and let the command read it"
            ) from None
    body = {
        **_command_body(command, fields),
        "stdin": stdin,
        "output_limit_bytes": output_limit_bytes,
    }
    timeout = fields.get("timeout")
    return Call(
        "POST",
        f"/v1/sandboxes/{part(sandbox)}/exec",
        lambda answer: exec_result(answer.json()),
        body=encode_json(body),
        headers=STREAM if streamed else JSON,
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
    interactive: bool,
    pty: tuple[int, int] | None,
    fields: CommandFields,
) -> Call[ExecState]:
    body = {
        **_command_body(command, fields),
        "id": exec_id,
        "interactive": True if interactive else None,
        "pty": None if pty is None else {"rows": pty[0], "cols": pty[1]},
    }
    return json_call("POST", _execs(sandbox), body, exec_state)


def list_execs(sandbox: str) -> Call[list[ExecState]]:
    return get_call(_execs(sandbox), lambda data: [exec_state(one) for one in data["execs"]])


def get_exec(sandbox: str, exec_id: str) -> Call[ExecState]:
    return get_call(_execs(sandbox, exec_id), exec_state)


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
        read_seconds=TRANSFER_SECONDS,
    )


def signal_exec(sandbox: str, exec_id: str, signal: str, tree: bool) -> Call[None]:
    body = {"signal": signal, "scope": "tree" if tree else "leader"}
    return json_call("POST", _execs(sandbox, exec_id, "signal"), body, lambda _: None)


def resize_exec(sandbox: str, exec_id: str, rows: int, cols: int) -> Call[None]:
    body = {"rows": rows, "cols": cols}
    return json_call("POST", _execs(sandbox, exec_id, "resize"), body, lambda _: None)


def exec_output(
    sandbox: str, exec_id: str, stream: str, offset: int, limit: int | None
) -> Call[bytes]:
    return Call(
        "GET",
        _execs(sandbox, exec_id, "output"),
        lambda answer: answer.content,
        query={"stream": stream, "offset": offset, "limit": limit},
        read_seconds=TRANSFER_SECONDS,
    )


def exec_event(event: ServerSentEvent) -> ExecEvent | None:
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
