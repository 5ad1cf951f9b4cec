"""Commands."""

from __future__ import annotations

import logging
import time
from typing import Any

from deepagents.backends.protocol import ExecuteResponse

from ..errors import CaissonError, InvalidRequestError
from ..types import ExecResult
from .operation import DoomError, Operation, Steps
from .sentences import (
    DISCARDED,
    NO_RESULT,
    OUTPUT_DROPPED,
    UNAVAILABLE,
    UNBOUNDED,
    UNFINISHED,
    join,
)
from .spec import SandboxSpec

log = logging.getLogger("caisson")

_UNLIMITED_SECONDS = 24 * 3600.0


def execute(spec: SandboxSpec, command: str, timeout: float | None) -> Operation[ExecuteResponse]:
    seconds = spec.execute_timeout if timeout is None else timeout
    if seconds < 0:
        raise ValueError(f"timeout is {timeout}; it must be 0 (no limit) or more seconds")
    limit = spec.max_output_bytes
    deadline = time.monotonic() + (seconds or _UNLIMITED_SECONDS)

    def failed(sentence: str) -> ExecuteResponse:
        return ExecuteResponse(output=sentence, exit_code=None)

    def steps() -> Steps[ExecuteResponse]:
        notes: list[str] = []
        cwd = spec.directory
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return failed(UNAVAILABLE)

            def run(box: Any, cwd: str = cwd, left: float = left) -> Any:
                return box.exec(
                    command,
                    cwd=cwd,
                    timeout=left if seconds else None,
                    output_limit_bytes=limit,
                )

            try:
                result: ExecResult = yield run
                break
            except InvalidRequestError as error:
                if "output_limit_bytes" not in error.detail:
                    raise
                log.warning("%s", error)
                return failed(UNBOUNDED.format(limit=limit))
            except CaissonError as error:
                if error.code != "invalid_cwd" or cwd == "/":
                    raise
                notes.append(f"the working directory {cwd} cannot be entered; this ran in /")
                cwd = "/"
        return _response(spec, result, seconds, notes)

    return Operation(steps(), failed, changes=True, deadline=deadline)


def _response(
    spec: SandboxSpec, result: ExecResult, seconds: float, notes: list[str]
) -> ExecuteResponse:
    ends: list[str] = []
    doomed = False
    match result.reason:
        case "exited" | "signaled" | "oom":
            if result.signal is not None:
                why = ": out of memory" if result.reason == "oom" else ""
                notes.append(f"ended by signal {result.signal}{why}")
            elif result.reason == "oom":
                notes.append("out of memory")
        case "timeout":
            doomed = spec.after_unfinished == "dispose"
            ends.append(UNFINISHED.format(seconds=f"{seconds:g}") + (DISCARDED * doomed))
        case _:  # killed by somebody, lost: what it did is not known
            doomed = spec.after_unfinished != "keep_always"
            ends.append(NO_RESULT + DISCARDED * doomed)
    if result.still_running > 0:
        notes.append(f"{result.still_running} of its processes still run")
    if result.truncated:
        ends.insert(0, OUTPUT_DROPPED.format(limit=spec.max_output_bytes))
    response = ExecuteResponse(
        output=join(result, notes, ends),
        exit_code=result.code if not doomed and result.reason != "timeout" else None,
        truncated=result.truncated,
    )
    if doomed:
        raise DoomError(response)
    return response
