"""Sandboxes: made, explained, listed, ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._fields import SandboxFields
from .._http import CLOSE_SECONDS, Call, part
from ..types import Explanation, Page, SandboxInfo, SandboxUsage, make
from .common import get_call, json_call, one, page, with_key


def spec_body(fields: SandboxFields) -> dict[str, Any]:
    """The body of `POST /v1/sandboxes` and of its `explain`."""
    body: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    # What JSON can be made of, whatever kind of mapping or sequence it is.
    for name, kind in (
        ("env", dict),
        ("resources", dict),
        ("writable_paths", list),
        ("read_only_sets", list),
    ):
        if name in body:
            body[name] = kind(body[name])
    if "transfer" in body:
        body["transfer"] = {way: dict(caps) for way, caps in body["transfer"].items()}
    return body


def create_sandbox(
    spec: Mapping[str, Any], key: str | None, timeout: float | None = None
) -> Call[SandboxInfo]:
    call = with_key(json_call("POST", "/v1/sandboxes", spec, one(SandboxInfo)), key)
    return call if timeout is None else replace(call, read_seconds=timeout)


def explain_sandbox(spec: Mapping[str, Any]) -> Call[Explanation]:
    return json_call("POST", "/v1/sandboxes:explain", spec, one(Explanation))


def get_sandbox(sandbox: str) -> Call[SandboxInfo]:
    return get_call(f"/v1/sandboxes/{part(sandbox)}", one(SandboxInfo))


def sandbox_usage(sandbox: str) -> Call[SandboxUsage]:
    return get_call(f"/v1/sandboxes/{part(sandbox)}/usage", one(SandboxUsage))


def list_sandboxes(limit: int | None, cursor: str | None) -> Call[Page[SandboxInfo]]:
    return get_call("/v1/sandboxes", page(SandboxInfo), limit=limit, cursor=cursor)


def delete_sandbox(sandbox: str, generation: int | None) -> Call[SandboxInfo]:
    return Call(
        "DELETE",
        f"/v1/sandboxes/{part(sandbox)}",
        lambda answer: make(SandboxInfo, answer.json()),
        query={"generation": generation},
        read_seconds=CLOSE_SECONDS,
    )
