"""What a Deep Agents sandbox is to be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .._fields import SandboxFields
from ..errors import SandboxRefusedError

ARTIFACTS = ("/large_tool_results", "/conversation_history", "/blobs")
"""Where Deep Agents puts what is too much for a model."""

_WRITABLE = ("/workspace", "/home/user", "/tmp", "/var/tmp")  # in every sandbox
_CAPABILITIES = frozenset(("exec", "files_in", "files_out"))
_HOST = re.compile(
    r"(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)


@dataclass(frozen=True)
class TransferLimits:
    """Limits of `upload_files` and of `download_files`.

    A batch of too many files is refused whole. A file over its limit, or over what is left of the
    total, is refused alone. A download over a limit is refused, never cut.
    """

    max_file_bytes: int = 8 << 20
    max_total_bytes: int = 32 << 20
    max_files: int = 64


@dataclass(frozen=True)
class SandboxSpec:
    """What a Deep Agents sandbox is to be; `sandbox_spec` makes it."""

    kind: str = "deepagents"
    profile: str | None = None
    network: str = "closed"
    egress_allow: tuple[str, ...] = ()
    work_dir: str | None = "/workspace"
    requires: frozenset[str] = _CAPABILITIES
    isolation_scope: str = "conversation"
    call_id: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    writable_paths: tuple[str, ...] = ARTIFACTS
    """Besides the working directory, the home directory and /tmp."""
    ttl_ms: int | None = None
    execute_timeout: float = 120
    """Seconds for a command, and for the sandbox before it, when the call names none."""
    max_output_bytes: int = 1 << 20
    limits: TransferLimits = TransferLimits()
    after_unfinished: Literal["dispose", "keep", "keep_always"] = "dispose"
    """What becomes of the sandbox after a command that timed out or was cancelled. `keep` relies
    on the server, which ends the whole process tree and refuses a sandbox where it cannot.
    `keep_always`, of sandboxes that others made, also keeps it when the end is not known."""

    @property
    def directory(self) -> str:
        return self.work_dir or "/"

    def absolute(self, path: str) -> str:
        """The path from the root, without doubled slashes. `..` is left to the sandbox: what it
        means depends on links."""
        full = path if path.startswith("/") else f"{self.directory}/{path}"
        return re.sub(r"(/\.?)+(?=/|$)", "", re.sub(r"/{2,}", "/", full)) or "/"

    def writable(self) -> list[str]:
        """All that must be made writable: the working directory, too, where no sandbox has it."""
        there = (*_WRITABLE, *self.writable_paths)
        below = any(f"{self.directory}/".startswith(f"{path}/") for path in there)
        return [*self.writable_paths, *([] if below else [self.directory])]

    def fields(self) -> SandboxFields:
        """What the server is asked for."""
        return SandboxFields(
            profile=self.profile,
            network=self.network,
            ttl_ms=self.ttl_ms,
            env=self.env or None,
            resources=self.resources or None,
            transfer={"in": asdict(self.limits), "out": asdict(self.limits)},
            writable_paths=self.writable(),
        )


def sandbox_spec(
    *,
    profile: str | None = None,
    egress_allow: Sequence[str] = (),
    work_dir: str = "/workspace",
    env: Mapping[str, str] | None = None,
    resources: Mapping[str, Any] | None = None,
    writable_paths: Sequence[str] = (),
    ttl_ms: int | None = None,
    execute_timeout: float = 120,
    max_output_bytes: int = 1 << 20,
    limits: TransferLimits | None = None,
    after_unfinished: Literal["dispose", "keep"] = "dispose",
) -> SandboxSpec:
    """A specification. Without `egress_allow` the network is closed; with it, only these hosts
    are reached, or the sandbox is refused where that cannot be enforced. `writable_paths` are more
    directories that can be written to, besides the working directory and Deep Agents' own."""
    if isinstance(egress_allow, str):
        raise ValueError("egress_allow is a list of hosts, not one text")
    hosts = tuple(sorted({host.lower() for host in egress_allow}))
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ValueError(f"egress_allow: {host!r} is no host name (or *.name)")
    return SandboxSpec(
        profile=profile,
        network="allow_list" if hosts else "closed",
        egress_allow=hosts,
        work_dir=work_dir,
        env=dict(env or {}),
        resources=dict(resources or {}),
        writable_paths=(*ARTIFACTS, *writable_paths),
        ttl_ms=ttl_ms,
        execute_timeout=execute_timeout,
        max_output_bytes=max_output_bytes,
        limits=limits or TransferLimits(),
        after_unfinished=after_unfinished,
    )


def check(spec: SandboxSpec) -> None:
    """Refuses what this adapter does not do, whoever made the specification."""

    def refuse(code: str, detail: str) -> None:
        raise SandboxRefusedError(code, detail)

    missing = _CAPABILITIES - spec.requires
    if missing:
        refuse("capability_missing", f"requires lacks {', '.join(sorted(missing))}")
    unknown = spec.requires - _CAPABILITIES
    if unknown:
        refuse("capability_not_supported", f"requires has {', '.join(sorted(unknown))}")
    if spec.isolation_scope != "conversation":
        refuse(
            "isolation_scope_not_supported",
            f"isolation_scope is {spec.isolation_scope!r}; only 'conversation' is supported",
        )
    if spec.call_id:
        refuse("call_id_not_empty", "a sandbox of a conversation has no call_id")
    if spec.network == "unrestricted":
        refuse("egress_not_permitted", "network 'unrestricted' is not for agents; name the hosts")
    if bool(spec.egress_allow) != (spec.network == "allow_list"):
        refuse("egress_not_permitted", "egress_allow and network 'allow_list' go together")
    if spec.work_dir is None or not spec.work_dir.startswith("/"):
        refuse("invalid_work_dir", f"work_dir is {spec.work_dir!r}; it must be an absolute path")
    if not 0 < spec.execute_timeout <= 24 * 3600:
        refuse("invalid_timeout", f"execute_timeout is {spec.execute_timeout}; 0 < t <= 86400 s")
    if spec.max_output_bytes < 1024:
        refuse("invalid_limit", f"max_output_bytes is {spec.max_output_bytes}; at least 1024")
    if min(spec.limits.max_file_bytes, spec.limits.max_total_bytes, spec.limits.max_files) < 1:
        refuse("invalid_limit", "each of limits is at least 1")
