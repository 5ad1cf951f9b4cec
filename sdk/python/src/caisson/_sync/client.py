# Made from _async/client.py by tools/unasync.py; change that one.
"""A server, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from .._calls import sandboxes as _calls
from .._fields import SandboxFields
from .._http import Settings
from .._transport import SyncTransport
from ..errors import CaissonError
from ..types import Explanation, Page, SandboxInfo
from .agents import Definitions, Runs, Sessions
from .sandbox import Sandbox, end_sandbox


class Client:
    """A Caisson server.

    `base_url` is by default the environment's CAISSON_URL, else http://127.0.0.1:8080. `scope`
    separates tenants: what belongs to another scope does not exist. `timeout` is how many seconds
    the server may be silent in a call; commands and streams have their own.

    A client may be used by several threads, inside a running event loop (which it blocks), and
    after a fork: the child makes its own connections.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        scope: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings.make(base_url, scope, headers, timeout)
        self._transport = SyncTransport(self.settings)
        self.sandboxes = Sandboxes(self._transport)
        self.agents = Definitions(self._transport, "agents")
        self.providers = Definitions(self._transport, "providers")
        self.sessions = Sessions(self._transport)
        self.runs = Runs(self._transport)

    def sandbox(self, **fields: Unpack[SandboxFields]) -> Sandbox:
        """A sandbox that is made when it is entered or first used, and ended at the exit."""
        return Sandbox(self._transport, spec=_calls.spec_body(fields))

    def close(self) -> None:
        """Closes the connections of this process. Sandboxes live on."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sandboxes:
    """`client.sandboxes`"""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport

    def create(self, **fields: Unpack[SandboxFields]) -> Sandbox:
        """Makes a sandbox. It lives until `close()`, `delete()` or its time to live."""
        box = Sandbox(self._transport, spec=_calls.spec_body(fields))
        box.acquire()
        return box

    def explain(self, **fields: Unpack[SandboxFields]) -> Explanation:
        """Whether `create` would make this sandbox; makes nothing."""
        return self._transport.run(_calls.explain_sandbox(_calls.spec_body(fields)))

    def get(self, sandbox_id: str) -> SandboxInfo:
        return self._transport.run(_calls.get_sandbox(sandbox_id))

    def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[SandboxInfo]:
        """Also those that are gone."""
        return self._transport.run(_calls.list_sandboxes(limit, cursor))

    def delete(self, sandbox_id: str, *, generation: int | None = None) -> SandboxInfo:
        """Ends a sandbox; the answer is the receipt, again and again. With `generation` only
        that one: `PreconditionFailedError` when it has another."""
        return self._transport.run(_calls.delete_sandbox(sandbox_id, generation))

    def dispose(self, info: SandboxInfo) -> bool:
        """Ends exactly the sandbox that was described so: whether it is gone now."""
        try:
            return end_sandbox(self._transport, info)
        except CaissonError:
            return False

    def attach(self, sandbox_id: str) -> Sandbox:
        """A handle of a sandbox that exists. Closing the handle does not end it."""
        return Sandbox(self._transport, attached=sandbox_id)
