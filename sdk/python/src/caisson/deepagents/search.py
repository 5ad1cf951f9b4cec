"""Search: files by pattern, lines by text."""

from __future__ import annotations

from dataclasses import fields

from deepagents.backends.protocol import FileInfo, GlobResult, GrepMatch, GrepResult

from ..errors import CaissonError, FileError, InvalidRequestError, SearchError
from .files import file_info
from .operation import Operation, Steps
from .spec import SandboxSpec

_GREP_MATCHES = 10_000  # what the server gives at most
_GREP_LINE_BYTES = 64 * 1024


def glob(spec: SandboxSpec, pattern: str, path: str | None, legacy: bool) -> Operation[GlobResult]:
    full = spec.absolute(path or "/")

    def steps() -> Steps[GlobResult]:
        try:
            found = yield lambda box: box.search.glob(
                pattern,
                full,
                bare_any_depth=not legacy,
                bare_dot_directories=not legacy,
                files_only=not legacy,
                directories=legacy,
                relative=legacy,
            )
        except (FileError, SearchError, InvalidRequestError) as error:
            return GlobResult(error=f"Path '{full}': {_search_error(error)}")
        matches = [file_info(entry.path, entry) for entry in found.matches]
        return _glob_result(matches, found.truncated, found.unreadable > 0)

    return Operation(steps(), lambda sentence: GlobResult(error=sentence))


def grep(
    spec: SandboxSpec, pattern: str, path: str | None, glob: str | None, max_count: int | None
) -> Operation[GrepResult]:
    full = spec.absolute(path or ".")
    cap = _GREP_MATCHES if max_count is None else max(0, min(max_count, _GREP_MATCHES))

    def steps() -> Steps[GrepResult]:
        try:
            found = yield lambda box: box.search.grep(
                pattern,
                full,
                glob=glob,
                limit=max(1, cap),
                max_line_bytes=_GREP_LINE_BYTES,
            )
        except (FileError, SearchError, InvalidRequestError) as error:
            if error.code == "file_not_found":
                return GrepResult(matches=[])
            return GrepResult(error=f"Path '{full}': {_search_error(error)}")
        matches = [
            GrepMatch(path=match.path, line=match.line, text=match.text)
            for match in found.matches[:cap]
        ]
        truncated = found.truncated or len(found.matches) > cap
        return GrepResult(matches=matches, truncated=truncated)

    return Operation(steps(), lambda sentence: GrepResult(error=sentence))


def _search_error(error: CaissonError) -> str:
    if error.code == "file_not_found":
        return "path_not_found"
    # What is wrong with a pattern is the model's own business.
    return f"{error.code}: {error.detail}" if isinstance(error, SearchError) else error.code


def _glob_result(matches: list[FileInfo], limited: bool, unreadable: bool) -> GlobResult:
    result = GlobResult(matches=matches, truncated=limited or unreadable)
    # Newer versions of Deep Agents want to know why.
    if result.truncated and any(one.name == "truncation_reason" for one in fields(GlobResult)):
        result.truncation_reason = "budget" if limited else "unreadable"
    return result
