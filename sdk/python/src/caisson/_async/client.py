"""A server, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from .._calls import sandboxes as _calls
from .._fields import SandboxFields
from .._http import Settings
from .._transport import AsyncTransport
from ..errors import CaissonError
from ..types import Explanation, Page, SandboxInfo
from .agents import AsyncDefinitions, AsyncRuns, AsyncSessions
from .sandbox import AsyncSandbox, end_sandbox


class AsyncClient:
    """A Caisson server, for asyncio.

    `base_url` is by default the environment's CAISSON_URL, else http://127.0.0.1:8080. `scope`
    separates tenants: what belongs to another scope does not exist. `timeout` is how many seconds
    the server may be silent in a call; commands and streams have their own.

    A client may be used in several event loops; each gets its own connections.
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
        self._transport = AsyncTransport(self.settings)
        self.sandboxes = AsyncSandboxes(self._transport)
        self.agents = AsyncDefinitions(self._transport, "agents")
        self.providers = AsyncDefinitions(self._transport, "providers")
        self.sessions = AsyncSessions(self._transport)
        self.runs = AsyncRuns(self._transport)

    def sandbox(self, **fields: Unpack[SandboxFields]) -> AsyncSandbox:
        """A sandbox that is made when it is entered or first used, and ended at the exit."""
        return AsyncSandbox(self._transport, spec=_calls.spec_body(fields))

    async def aclose(self) -> None:
        """Closes the connections of this process and event loop. Sandboxes live on."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class AsyncSandboxes:
    """`client.sandboxes`"""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[SandboxFields]) -> AsyncSandbox:
        """Makes a sandbox. It lives until `aclose()`, `delete()` or its time to live."""
        box = AsyncSandbox(self._transport, spec=_calls.spec_body(fields))
        await box.acquire()
        return box

    async def explain(self, **fields: Unpack[SandboxFields]) -> Explanation:
        """Whether `create` would make this sandbox; makes nothing."""
        return await self._transport.run(_calls.explain_sandbox(_calls.spec_body(fields)))

    async def get(self, sandbox_id: str) -> SandboxInfo:
        return await self._transport.run(_calls.get_sandbox(sandbox_id))

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[SandboxInfo]:
        """Also those that are gone."""
        return await self._transport.run(_calls.list_sandboxes(limit, cursor))

    async def delete(self, sandbox_id: str, *, generation: int | None = None) -> SandboxInfo:
        """Ends a sandbox; the answer is the receipt, again and again. With `generation` only
        that one: `PreconditionFailedError` when it has another."""
        return await self._transport.run(_calls.delete_sandbox(sandbox_id, generation))

    async def dispose(self, info: SandboxInfo) -> bool:
        """Ends exactly the sandbox that was described so: whether it is gone now."""
        try:
            return await end_sandbox(self._transport, info)
        except CaissonError:
            return False

    def attach(self, sandbox_id: str) -> AsyncSandbox:
        """A handle of a sandbox that exists. Closing the handle does not end it."""
        return AsyncSandbox(self._transport, attached=sandbox_id)
