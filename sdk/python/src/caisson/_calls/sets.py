"""Calls of read-only sets."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .._http import Call, part
from ..types import AppliedSet, make
from .common import TRANSFER_SECONDS, get_call, json_call


@dataclass(frozen=True)
class SetContent:
    """The files of a set, and their contents by hash."""

    files: list[dict[str, object]]
    blobs: dict[str, bytes]


def set_content(files: Mapping[str, str | bytes], executable: Collection[str]) -> SetContent:
    unknown = set(executable) - set(files)
    if unknown:
        raise ValueError(f"executable names {', '.join(sorted(unknown))}, which is not in files")
    listed: list[dict[str, object]] = []
    blobs: dict[str, bytes] = {}
    for path, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        sha256 = hashlib.sha256(data).hexdigest()
        blobs[sha256] = data
        listed.append({"path": path, "sha256": sha256, "executable": path in executable})
    return SetContent(listed, blobs)


def apply_set(sandbox: str, path: str, content: SetContent) -> Call[AppliedSet]:
    body = {"path": path, "files": content.files}
    return json_call("POST", _sets(sandbox, "/apply"), body, lambda data: make(AppliedSet, data))


def put_blob(sandbox: str, path: str, sha256: str, content: bytes) -> Call[None]:
    return Call(
        "PUT",
        _sets(sandbox, "/blob"),
        lambda _: None,
        query={"path": path, "sha256": sha256},
        body=content,
        headers={"Content-Type": "application/octet-stream"},
        read_seconds=TRANSFER_SECONDS,
    )


def show_set(sandbox: str, path: str) -> Call[str]:
    return get_call(_sets(sandbox, ""), lambda data: str(data["digest"]), path=path)


def _sets(sandbox: str, call: str) -> str:
    return f"/v1/sandboxes/{part(sandbox)}/sets{call}"
