"""The sandbox provider of Deep Agents Code: `dcode --sandbox caisson`.

It is the entry point `caisson` of `deepagents_code.sandbox_providers`, so it needs the package
`deepagents-code`, in whose process it is loaded. The server is the one of `Client()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from deepagents.backends.protocol import ExecuteResponse
from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

from .._sync.client import Client
from ..errors import CaissonError, InvalidRequestError, NotFoundError
from ..types import SandboxInfo
from .attached import AttachedSandbox
from .spec import SandboxSpec, check, sandbox_spec

T = TypeVar("T")

_WORK_DIR = "/workspace"  # of every sandbox; dcode tells it to the model
# A text that is no id is refused before anything is looked for.
_NO_SUCH_ID = (NotFoundError, InvalidRequestError)


class CaissonProvider(SandboxProvider):
    """Makes, finds and ends sandboxes by their ids.

    What fails is a `SandboxError`, with the server's code and words, and of them a
    `SandboxNotFoundError` where there is no such sandbox; a parameter that is wrong is a
    `TypeError` or a `ValueError`.
    """

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(
            name="caisson",
            working_dir=_WORK_DIR,
            supports_sandbox_id=True,
            supports_snapshot_name=False,
        )

    def get_or_create(self, *, sandbox_id: str | None = None, **kwargs: Any) -> AttachedSandbox:
        """The sandbox with this id, else a new one; the backend's `id` is the sandbox's.

        `kwargs` are parameters of `sandbox_spec`, but for `work_dir`, `limits` and
        `after_unfinished`. For a sandbox that exists only those count that limit calls. It lives
        until `delete` or its time to live; nothing else ends it.
        """
        spec = sandbox_spec(work_dir=_WORK_DIR, limits=None, after_unfinished="keep", **kwargs)

        def work() -> SandboxInfo:
            check(spec)
            with Client() as client:
                return _make(client, spec) if sandbox_id is None else _find(client, sandbox_id)

        try:
            return _Backend(_off_the_loop(work), spec)
        except CaissonError as error:
            raise SandboxError(str(error)) from error

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Ends the sandbox; one that is gone stays so. Returns when its end is confirmed."""

        def work() -> SandboxInfo:
            with Client() as client:
                return client.sandboxes.delete(sandbox_id)

        try:
            receipt = _off_the_loop(work)
        except _NO_SUCH_ID as error:
            raise _not_found(sandbox_id) from error
        except CaissonError as error:
            raise SandboxError(str(error)) from error
        if not receipt.gone:
            raise SandboxError(f"the end of sandbox {sandbox_id} is not confirmed")


class _Backend(AttachedSandbox):
    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        # So dcode runs a setup script; whatever an agent runs comes to `aexecute`.
        run = super().execute
        return _off_the_loop(lambda: run(command, timeout=timeout))


def _off_the_loop(work: Callable[[], T]) -> T:
    """Does it in a thread of its own where an event loop runs in this one. dcode calls from its
    server's loop, and that refuses whatever opens a socket there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # also when the interpreter ends, which starts no threads
        return work()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _make(client: Client, spec: SandboxSpec) -> SandboxInfo:
    box = client.sandbox(**spec.fields())
    try:
        box.acquire()
    except BaseException:
        box.close()  # what a lost answer may have made
        raise
    assert box.info is not None
    return box.info


def _find(client: Client, sandbox_id: str) -> SandboxInfo:
    try:
        info = client.sandboxes.get(sandbox_id)
    except _NO_SUCH_ID as error:
        raise _not_found(sandbox_id) from error
    if info.gone:
        raise SandboxNotFoundError(f"sandbox {sandbox_id} is gone, and its files with it")
    if info.status != "ready":
        raise SandboxError(f"sandbox {sandbox_id} cannot be used now: it is {info.status}")
    return info


def _not_found(sandbox_id: str) -> SandboxNotFoundError:
    return SandboxNotFoundError(f"this server has no sandbox {sandbox_id!r} in this scope")
