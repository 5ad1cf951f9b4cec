"""Many files at once."""

from __future__ import annotations

from deepagents.backends.protocol import FileDownloadResponse, FileUploadResponse

from ..errors import FileError, InvalidRequestError
from .operation import Operation, Steps
from .sentences import DOWNLOAD_UNFINISHED, UPLOAD_UNFINISHED
from .spec import SandboxSpec

# Codes of Deep Agents for upload and download; any other code goes as it is.
_TRANSFER_ERRORS = {
    "file_access_denied": "permission_denied",
    "read_only": "permission_denied",
    "outside_root": "permission_denied",
    "not_a_directory": "invalid_path",
    "not_a_regular_file": "invalid_path",
    "symlink_loop": "invalid_path",
}


def upload(
    spec: SandboxSpec, files: list[tuple[str, bytes]]
) -> Operation[list[FileUploadResponse]]:
    limits = spec.limits

    def all_failed(error: str) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=error) for path, _ in files]

    def steps() -> Steps[list[FileUploadResponse]]:
        if len(files) > limits.max_files:
            return all_failed("too_many_files")
        answers = [FileUploadResponse(path=path) for path, _ in files]
        sent = []
        for at, (path, content) in enumerate(files):
            if not path.startswith("/"):
                answers[at].error = "invalid_path"
            elif len(content) > limits.max_file_bytes:
                answers[at].error = "file_too_large"
            else:
                sent.append(at)
        if not sent:
            return answers
        try:
            results = yield lambda box: box.files.upload(
                [files[at] for at in sent],
                parents=True,
            )
        except (FileError, InvalidRequestError) as error:  # the batch as a whole
            return all_failed(error.code)
        for at, result in zip(sent, results, strict=True):
            answers[at].error = _transfer_error(result.code)
        return answers

    return Operation(steps(), all_failed, changes=True, unknown=UPLOAD_UNFINISHED)


def download(spec: SandboxSpec, paths: list[str]) -> Operation[list[FileDownloadResponse]]:
    limits = spec.limits

    def all_failed(error: str) -> list[FileDownloadResponse]:
        return [FileDownloadResponse(path=path, error=error) for path in paths]

    def steps() -> Steps[list[FileDownloadResponse]]:
        if len(paths) > limits.max_files:
            return all_failed("too_many_files")
        answers = [FileDownloadResponse(path=path) for path in paths]
        sent = [at for at, path in enumerate(paths) if path.startswith("/")]
        for at in set(range(len(paths))) - set(sent):
            answers[at].error = "invalid_path"
        if not sent:
            return answers
        try:
            results = yield lambda box: box.files.download(
                [paths[at] for at in sent],
            )
        except (FileError, InvalidRequestError) as error:
            return all_failed(error.code)
        for at, result in zip(sent, results, strict=True):
            answers[at].content = result.content
            answers[at].error = _transfer_error(result.code)
        return answers

    return Operation(steps(), all_failed, unknown=DOWNLOAD_UNFINISHED)


def _transfer_error(code: str | None) -> str | None:
    return None if code is None else _TRANSFER_ERRORS.get(code, code)
