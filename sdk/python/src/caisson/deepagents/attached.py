"""A sandbox that exists already, as a backend."""

from __future__ import annotations

from dataclasses import replace

from .._sync.client import Client
from ..types import SandboxInfo
from .backend import SandboxBackend
from .shared_sandbox import SharedSandbox
from .spec import SandboxSpec, check, sandbox_spec


class AttachedSandbox(SandboxBackend):
    """A sandbox that somebody made, for Deep Agents: `id` is its own, under which others find it.

    It is neither ended nor replaced here, whatever happens; when it is gone, every operation says
    that it cannot be used. `close()` and `aclose()` only let nobody in any more. Of the
    specification what limits calls counts; what the sandbox is was decided when it was made.
    """

    def __init__(
        self, info: SandboxInfo, spec: SandboxSpec | None = None, *, client: Client | None = None
    ) -> None:
        spec = replace(spec or sandbox_spec(), after_unfinished="keep_always")
        check(spec)
        shared = SharedSandbox(info.id, spec, client or Client(), client is None, info)
        super().__init__(info.id, spec, shared, legacy=False)
