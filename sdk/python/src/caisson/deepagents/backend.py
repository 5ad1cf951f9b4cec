"""The methods that Deep Agents calls, over one shared sandbox."""

from __future__ import annotations

from typing import Self

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from ..types import SandboxInfo
from . import commands, files, search, transfers
from .shared_sandbox import SharedSandbox
from .spec import SandboxSpec


class SandboxBackend(BaseSandbox):
    """What every backend here does; its makers differ in which sandbox that is.

    It may be used from threads and event loops at once.
    """

    def __init__(self, name: str, spec: SandboxSpec, shared: SharedSandbox, legacy: bool) -> None:
        self._id = name
        self._spec = spec
        self._shared = shared
        self._legacy = legacy

    @property
    def id(self) -> str:
        return self._id

    @property
    def sandbox_info(self) -> SandboxInfo | None:
        """The sandbox that is used now; None where there is none."""
        return self._shared.info

    def close(self) -> bool:
        """Ends the sandbox, exactly the one that was made, when the calls in it are done (or
        after 10 seconds, which ends them). True when it is gone or was never made, False when
        that cannot be confirmed; closing again tries again. Nothing else can be done with this
        object afterwards."""
        return self._shared.close()

    async def aclose(self) -> bool:
        """The same as `close`."""
        return await self._shared.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Commands.

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a shell command in the working directory.

        `timeout` is in seconds and covers the making of the sandbox, too; 0 is no limit, None the
        specification's. `output` is stdout, then the lines of stderr with "[stderr] " and notes
        with "[note] " before them. The exit code is the command's own, or None: there is no
        made-up one.
        """
        return self._shared.run(commands.execute(self._spec, command, timeout))

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,
    ) -> ExecuteResponse:
        """The same as `execute`; cancelling it ends the command."""
        return await self._shared.arun(commands.execute(self._spec, command, timeout))

    # Files.

    def ls(self, path: str) -> LsResult:
        return self._shared.run(files.ls(self._spec, path))

    async def als(self, path: str) -> LsResult:
        return await self._shared.arun(files.ls(self._spec, path))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return self._shared.run(files.read(self._spec, file_path, offset, limit))

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await self._shared.arun(files.read(self._spec, file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        return self._shared.run(files.write(self._spec, file_path, content, self._legacy))

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await self._shared.arun(files.write(self._spec, file_path, content, self._legacy))

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        return self._shared.run(
            files.edit(self._spec, file_path, old_string, new_string, replace_all)
        )

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        return await self._shared.arun(
            files.edit(self._spec, file_path, old_string, new_string, replace_all)
        )

    def delete(self, file_path: str) -> DeleteResult:
        return self._shared.run(files.delete(self._spec, file_path))

    async def adelete(self, file_path: str) -> DeleteResult:
        return await self._shared.arun(files.delete(self._spec, file_path))

    # Search.

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return self._shared.run(search.glob(self._spec, pattern, path, self._legacy))

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        return await self._shared.arun(search.glob(self._spec, pattern, path, self._legacy))

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        return self._shared.run(search.grep(self._spec, pattern, path, glob, max_count))

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        return await self._shared.arun(search.grep(self._spec, pattern, path, glob, max_count))

    # Many files.

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files, with their directories; what became of each, in order."""
        return self._shared.run(transfers.upload(self._spec, files)) if files else []

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """The same as `upload_files`."""
        return await self._shared.arun(transfers.upload(self._spec, files)) if files else []

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Reads files; what became of each, in order."""
        return self._shared.run(transfers.download(self._spec, paths)) if paths else []

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """The same as `download_files`."""
        return await self._shared.arun(transfers.download(self._spec, paths)) if paths else []
