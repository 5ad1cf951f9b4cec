"""Read-only sets of a sandbox."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from .._calls import sets as _calls
from ..errors import error_for
from ..types import AppliedSet

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox

_ROUNDS = 10


class AsyncSets:
    """`box.sets`: directories named in `read_only_sets`, which commands read and cannot change."""

    def __init__(self, box: AsyncSandbox) -> None:
        self._box = box

    async def put(
        self, path: str, files: Mapping[str, str | bytes], *, executable: Collection[str] = ()
    ) -> AppliedSet:
        """Makes these files, by their paths below it, the content of the set at `path`. Only what
        the sandbox has not got is sent, and readers see the old files or the new ones."""
        content = _calls.set_content(files, executable)
        # Another caller may change the set meanwhile, and drop what this one has sent.
        for _ in range(_ROUNDS):
            applied = await self._box.run(lambda box: _calls.apply_set(box, path, content))
            if not applied.missing:
                return applied
            for sha256 in applied.missing:
                await self._put_blob(path, sha256, content.blobs[sha256])
        raise error_for("conflict", f"others changed the set {path} again and again")

    async def _put_blob(self, path: str, sha256: str, data: bytes) -> None:
        await self._box.run(lambda box: _calls.put_blob(box, path, sha256, data))

    async def digest(self, path: str) -> str:
        """Of what the set at `path` holds: the same for the same files, see docs."""
        return await self._box.run(lambda box: _calls.show_set(box, path))
