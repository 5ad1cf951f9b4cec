"""Arguments that several calls take alike; each may be left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

Root = Literal["sandbox", "work_dir"]
"""Where relative paths start and what they reach: the sandbox's own /, or only what is below the
working directory."""


class SandboxFields(TypedDict, total=False):
    """What a sandbox is to be."""

    profile: str | None
    session_id: str | None
    work_dir: str | None
    network: str | None
    min_isolation: str | None
    ttl_ms: int | None
    idle_ms: int | None
    max_exec_ms: int | None
    env: Mapping[str, str] | None
    resources: Mapping[str, Any] | None
    transfer: Mapping[str, Mapping[str, int]] | None
    """`in` and `out`, each with `max_files`, `max_file_bytes`, `max_total_bytes`: the caps of
    uploads and downloads."""
    writable_paths: Sequence[str] | None
    read_only_sets: Sequence[str] | None


class CommandFields(TypedDict, total=False):
    """How a command runs."""

    cwd: str | None
    env: Mapping[str, str] | None
    timeout: float | None
    """Seconds; then it is ended with all that it started."""
    umask: str | None
    login: bool
    """Text runs in the user's login shell."""
    keep_bytes: int | None
    """So much of its output is kept on the sandbox's disk, to be read with `output`."""


class GlobFields(TypedDict, total=False):
    limit: int | None
    bare_any_depth: bool
    bare_dot_directories: bool
    directories: bool
    files_only: bool
    hidden: bool
    relative: bool
    root: Root | None


class GrepFields(TypedDict, total=False):
    regex: bool
    glob: str | None
    ignore_case: bool
    before: int
    after: int
    limit: int | None
    limit_per_file: int | None
    max_line_bytes: int | None
    hidden: bool
    relative: bool
    root: Root | None
