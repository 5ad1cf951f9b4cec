"""One operation of Deep Agents as steps that either client can take, and what its ends mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..errors import (
    AccessDeniedError,
    CaissonError,
    CommandError,
    ConflictError,
    ConnectionFailedError,
    FileError,
    InvalidRequestError,
    SandboxRefusedError,
    SearchError,
    TryLaterError,
)
from .sentences import DISCARDED, NO_RESULT, UNAVAILABLE

log = logging.getLogger("caisson")
R = TypeVar("R")

_CALL_SECONDS = 60.0
# Errors after which the sandbox is not, or must not be, used again.
_DEAD = frozenset(("sandbox_lost", "sandbox_unclean", "stale_owner", "not_found"))
# Errors that say that nothing was done.
_REFUSALS = frozenset(("sandbox_not_ready", "sandbox_busy", "sandbox_suspended"))


class NotAdmittedError(Exception):
    """There is no sandbox for the operation."""


Steps = Generator[Callable[[Any], Any], Any, R]
"""An operation: it yields calls on a sandbox, of either client, and gets their results."""


@dataclass
class Operation(Generic[R]):
    steps: Steps[R]
    failed: Callable[[str], R]
    """The result that says the sentence."""
    changes: bool = False
    """Whether an unknown end leaves the sandbox in an unknown state."""
    deadline: float = 0.0
    unknown: str = ""
    """The sentence for an end that is not known."""

    def __post_init__(self) -> None:
        self.deadline = self.deadline or time.monotonic() + _CALL_SECONDS
        self.unknown = self.unknown or (NO_RESULT if self.changes else UNAVAILABLE)

    def remaining(self) -> float:
        return max(0.001, self.deadline - time.monotonic())

    def dooms(self, end: BaseException, after_unfinished: str) -> bool:
        """Whether the sandbox must not be used again after this end."""
        if isinstance(end, StopIteration) or after_unfinished == "keep_always":
            return False
        if isinstance(end, DoomError):
            return True
        if isinstance(end, CaissonError):
            return end.code in _DEAD or (self.changes and not _refused(end))
        if isinstance(end, UnicodeEncodeError):
            return False  # it could not even be sent
        # The caller left: cancelled, interrupted.
        return self.changes and after_unfinished == "dispose"

    def result(self, who: str, end: BaseException, doom: bool) -> R:
        """What the operation gives at this end; raises what is no end of an operation."""
        if isinstance(end, StopIteration):
            result: R = end.value
            return result
        if isinstance(end, DoomError):
            doomed: R = end.result
            return doomed
        if isinstance(end, UnicodeEncodeError):
            log.warning("%s: text with half a surrogate pair cannot be sent", who)
            return self.failed(UNAVAILABLE)
        if not isinstance(end, CaissonError):
            raise end
        log.warning("%s: %s", who, end)
        known = _refused(end) or end.code in _DEAD
        sentence = UNAVAILABLE if known else self.unknown
        return self.failed(sentence + DISCARDED if doom else sentence)


class DoomError(Exception):
    """Ends an operation with a result, and the sandbox with it."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def _refused(error: CaissonError) -> bool:
    """Whether the error says that nothing was done."""
    if isinstance(error, ConnectionFailedError):
        return error.code == "unavailable"
    certain = (
        AccessDeniedError,
        CommandError,
        ConflictError,
        FileError,
        InvalidRequestError,
        SandboxRefusedError,
        SearchError,
        TryLaterError,
    )
    if isinstance(error, certain):
        return error.code != "deadline_exceeded"
    return error.code in _REFUSALS
