"""The sandbox of a conversation, made by its first operation."""

from __future__ import annotations

import asyncio
import hashlib
import json
import uuid
from typing import Any

from .._sync.client import Client
from ..errors import SandboxRefusedError
from .backend import SandboxBackend
from .shared_sandbox import SharedSandbox
from .spec import SandboxSpec, check, sandbox_spec


class CaissonSandbox(SandboxBackend):
    """A sandbox of one conversation for Deep Agents.

    Making it asks the server whether the specification is allowed (`SandboxRefusedError` says why
    not) and makes no sandbox: the first operation does. It may be used from threads and event
    loops at once. Close it with `close()` or `aclose()`, or use it with `with`.

    `thread_id` and `agent_id` come from the host, never from a model: `id` is made of them.
    `legacy=True` is the contract before Deep Agents 0.7, for suites that still test it: `write`
    refuses a file that exists, `glob` gives relative paths and directories.
    """

    def __init__(
        self,
        spec: SandboxSpec | None = None,
        *,
        client: Client | None = None,
        thread_id: str | None = None,
        agent_id: str = "",
        legacy: bool = False,
    ) -> None:
        spec = spec or sandbox_spec()
        check(spec)
        owns_client = client is None
        client = client or Client()
        try:
            explanation = client.sandboxes.explain(**spec.fields())
            if not explanation.allowed:
                raise SandboxRefusedError(explanation.code or "refused", explanation.detail or "")
        except BaseException:
            if owns_client:
                client.close()
            raise
        parts = [
            explanation.backend,
            sorted(client.settings.scope.items()),
            thread_id or str(uuid.uuid4()),
            agent_id,
            spec.kind,
            spec.network,
            sorted(spec.egress_allow),
        ]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        name = f"caisson-{digest[:16]}"
        super().__init__(name, spec, SharedSandbox(name, spec, client, owns_client), legacy)

    @property
    def id(self) -> str:
        """Stable for one conversation, agent and specification; not the id of an instance."""
        return self._id

    @classmethod
    async def acreate(cls, *args: Any, **kwargs: Any) -> CaissonSandbox:
        """The same as calling the class, without blocking the event loop."""
        return await asyncio.to_thread(cls, *args, **kwargs)
