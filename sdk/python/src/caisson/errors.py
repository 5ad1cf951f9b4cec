"""What can go wrong, by the code that the server gives it.

`code` is stable and meant for programs, `detail` is for people. The classes group codes where
callers handle them alike; a code that this version does not know is a plain `CaissonError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CaissonError(Exception):
    """A call that failed."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail
        self.status = status
        """The HTTP status; None when there was no answer."""
        self.retryable = retryable
        """Whether the same request may succeed later."""
        self.retry_after = retry_after
        """Seconds that the server asks to wait before that."""
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross processes (multiprocessing, task queues); keyword arguments would be lost.
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(cls: type[CaissonError], fields: dict[str, Any]) -> CaissonError:
    return cls(**fields)


class InvalidRequestError(CaissonError):
    """The request has a mistake; sending it again does not help."""


class AccessDeniedError(CaissonError):
    """The caller may not do this."""


class NotFoundError(CaissonError):
    """There is no such thing in this scope."""


class ConflictError(CaissonError):
    """The state of the thing forbids this."""


class PreconditionFailedError(ConflictError):
    """The thing has changed: another generation, revision or content."""


class TryLaterError(CaissonError):
    """A limit or a quota is reached, or a part does not answer now."""


class ConnectionFailedError(CaissonError):
    """No whole answer came: the server is not reached, or the connection broke.

    With code `unavailable` nothing was sent. With `connection_lost` or `deadline_exceeded` the
    request may have taken effect.
    """


class SandboxError(CaissonError):
    """The sandbox cannot be used now."""


class SandboxRefusedError(SandboxError):
    """No sandbox may be made from this specification on this host."""


class SandboxGoneError(SandboxError):
    """The sandbox is gone, and its files with it."""


class CommandError(CaissonError):
    """The command could not be started, or did not succeed (`ExecResult.check`)."""


class FileError(CaissonError):
    """A file call failed."""


class FileMissingError(FileError):
    """There is no such file or directory."""


class FileAccessError(FileError):
    """The sandbox's user may not do this to the file."""


class FileAlreadyExistsError(FileError):
    """The file exists already."""


class FileTooLargeError(FileError):
    """A file, or a batch of files, is larger than its limit."""


class EditError(FileError):
    """The text to replace does not occur, or more often than expected."""


class SearchError(CaissonError):
    """The pattern is not valid."""


class ModelError(CaissonError):
    """The model provider failed or refused."""


_CLASSES: Mapping[type[CaissonError], str] = {
    InvalidRequestError: "invalid_argument invalid_json malformed_request argument_too_large "
    "method_not_allowed body_too_large unsupported_media_type range_not_satisfiable "
    "header_too_large not_supported",
    AccessDeniedError: "unauthenticated permission_denied capability_denied",
    NotFoundError: "not_found exec_not_found",
    ConflictError: "conflict already_exists idempotency_mismatch session_busy exec_exists "
    "exec_ended fenced illegal_transition",
    PreconditionFailedError: "precondition_failed",
    TryLaterError: "quota_exceeded overloaded shutting_down unavailable store_busy "
    "too_many_execs deadline_exceeded",
    SandboxError: "sandbox_not_ready sandbox_unclean sandbox_busy sandbox_suspended stale_owner "
    "termination_unconfirmed",
    SandboxRefusedError: "no_backend isolation_not_permitted capability_not_supported "
    "limit_not_enforced egress_not_enforced transfer_limits_not_permitted host_unsupported "
    "launch_failed",
    SandboxGoneError: "sandbox_lost",
    CommandError: "invalid_cwd command_not_found command_not_executable spawn_failed",
    FileError: "invalid_path is_directory not_a_directory not_a_regular_file symlink_loop "
    "directory_not_empty disk_full not_text offset_past_end",
    FileMissingError: "file_not_found",
    FileAccessError: "file_access_denied read_only outside_root",
    FileAlreadyExistsError: "file_exists",
    FileTooLargeError: "file_too_large too_many_files",
    EditError: "string_not_found multiple_occurrences",
    SearchError: "invalid_pattern",
    ModelError: "model_unauthorized model_rate_limited model_bad_request context_overflow "
    "model_unavailable model_protocol model_output_limit missing_key",
}
_BY_CODE = {code: cls for cls, codes in _CLASSES.items() for code in codes.split()}


def error_class(code: str) -> type[CaissonError]:
    """The class of an error with this code."""
    return _BY_CODE.get(code, CaissonError)


def error_for(code: str, detail: str, **fields: Any) -> CaissonError:
    """An error of the class that belongs to the code."""
    return error_class(code)(code, detail, **fields)
