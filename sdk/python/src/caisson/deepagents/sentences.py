"""What a model is told, and the one text it gets of a command's outputs.

When an operation has no result of its own a model gets one of these sentences and no others. The
words of the server and of the operating system go to the log.
"""

from __future__ import annotations

from ..types import ExecResult

UNAVAILABLE = "[caisson] unavailable: the sandbox cannot be used now; nothing was run."
UNFINISHED = "[caisson] timeout: the command did not finish in {seconds} s and was ended."
NO_RESULT = "[caisson] no_result: the call ended without a result; it may have had effects."
OUTPUT_DROPPED = "[caisson] output_limit: output over {limit} bytes was dropped."
UNBOUNDED = "[caisson] not_bounded: output cannot be limited to {limit} bytes; nothing was run."
DISCARDED = " The sandbox is discarded with its files; the next call gets a new one."
UPLOAD_UNFINISHED = "[caisson] upload_unfinished: none of the files can be relied on."
DOWNLOAD_UNFINISHED = "[caisson] download_unfinished: no file arrived whole."

NO_OUTPUT = "<no output>"
STDERR_PREFIX = "[stderr] "
NOTE_PREFIX = "[note] "


def join(result: ExecResult, notes: list[str], ends: list[str]) -> str:
    """One text of both outputs, the notes, and the sentences about the end."""
    said = [STDERR_PREFIX + line for line in result.stderr.splitlines()]
    said += [NOTE_PREFIX + note for note in notes]
    said += ends
    if not said:
        return result.stdout or NO_OUTPUT
    if not result.stdout and not result.stderr:
        said.insert(0, NO_OUTPUT)
    between = "\n" if result.stdout and not result.stdout.endswith("\n") else ""
    return result.stdout + between + "\n".join(said)
