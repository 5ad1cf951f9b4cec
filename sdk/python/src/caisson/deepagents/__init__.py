"""A Caisson sandbox as a backend of Deep Agents; needs the extra: `caisson[deepagents]`.

    from caisson.deepagents import CaissonSandbox, sandbox_spec
    from deepagents import create_deep_agent

    with CaissonSandbox(sandbox_spec(), thread_id="conversation-1") as backend:
        agent = create_deep_agent(model=…, backend=backend)

Every method is a call of Caisson's API; nothing is made of shell commands, and the sandbox needs
no Python.
"""

from .attached import AttachedSandbox
from .conversation import CaissonSandbox
from .sentences import (
    DISCARDED,
    DOWNLOAD_UNFINISHED,
    NO_RESULT,
    OUTPUT_DROPPED,
    UNAVAILABLE,
    UNBOUNDED,
    UNFINISHED,
    UPLOAD_UNFINISHED,
)
from .spec import SandboxSpec, TransferLimits, sandbox_spec

__all__ = [
    "AttachedSandbox",
    "CaissonSandbox",
    "SandboxSpec",
    "TransferLimits",
    "sandbox_spec",
    "DISCARDED",
    "DOWNLOAD_UNFINISHED",
    "NO_RESULT",
    "OUTPUT_DROPPED",
    "UNAVAILABLE",
    "UNBOUNDED",
    "UNFINISHED",
    "UPLOAD_UNFINISHED",
]
