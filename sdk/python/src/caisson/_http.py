"""What both clients share: a call as data, errors from answers, and the two stream formats."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpx

from .errors import CaissonError, ConnectionFailedError, error_for

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 30.0
"""How long `close()` waits for the server to confirm an end."""

Body = bytes | Iterable[bytes] | AsyncIterable[bytes]


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how its answer is read. Making one does nothing yet."""

    method: str
    path: str
    parse: Callable[[httpx.Response], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_seconds: float | None = -1.0
    """How long the server may be silent; negative: the client's default, None: without limit."""

    def target(self) -> str:
        pairs = [(name, _text(value)) for name, value in self.query.items() if value is not None]
        return f"{self.path}?{urlencode(pairs, quote_via=quote)}" if pairs else self.path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def encode_json(body: Mapping[str, Any]) -> bytes:
    """The members that are not None: the server refuses what it does not know, and null is that."""
    present = {name: value for name, value in body.items() if value is not None}
    return json.dumps(present, ensure_ascii=False).encode()


def part(text: str) -> str:
    """One segment of a URL's path."""
    return quote(text, safe="")


@dataclass(frozen=True)
class Settings:
    """Where the server is and how it is spoken to; the same for both clients."""

    base_url: str
    headers: Mapping[str, str]
    scope: Mapping[str, str]
    timeout: float

    @classmethod
    def make(
        cls,
        base_url: str | None,
        scope: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> Settings:
        url = (base_url or os.environ.get("CAISSON_URL") or DEFAULT_URL).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url {url!r} must be like {DEFAULT_URL}")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; it must be above 0 (seconds)")
        return cls(url, dict(headers or {}), dict(scope or {}), timeout)

    def options(self) -> dict[str, Any]:
        """Arguments of httpx's clients."""
        headers = {f"X-Caisson-Scope-{key}": value for key, value in self.scope.items()}
        # A proxy of the environment is for other hosts than this one.
        loopback = urlsplit(self.base_url).hostname in ("localhost", "127.0.0.1", "::1")
        return {
            "base_url": self.base_url,
            "headers": {"User-Agent": "caisson-python/0.1.0", **headers, **self.headers},
            "trust_env": not loopback,
            "follow_redirects": False,
            # Commands and streams hold a connection each for as long as they last, so a limit
            # would make short calls wait for long ones.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=32),
        }

    def timeouts(self, call: Call[Any]) -> httpx.Timeout:
        read = call.read_seconds
        if read is not None and read < 0:
            read = self.timeout
        return httpx.Timeout(connect=CONNECT_SECONDS, read=read, write=self.timeout, pool=None)


def error_from_answer(response: httpx.Response) -> CaissonError:
    """The error of an answer that was read whole."""
    retry_after: float | None = None
    try:
        retry_after = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        pass
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        # Not this server's words: something between, or another server.
        code = "protocol_error"
        detail = f"{response.request.method} {response.request.url} gave {response.status_code}, "
        detail += f"and no Caisson error: {response.text[:200]!r}"
        problem = {}
    return error_for(
        code,
        detail,
        status=response.status_code,
        retryable=bool(problem.get("retryable", False)),
        retry_after=retry_after,
        request_id=problem.get("request_id"),
    )


def error_from_transport(error: httpx.HTTPError, call: Call[Any], base_url: str) -> CaissonError:
    """The error of a call without a whole answer."""
    what = f"{call.method} {base_url}{call.path}"
    why = str(error) or type(error).__name__
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)):
        return ConnectionFailedError(
            "unavailable", f"{what}: the server is not reached: {why}", retryable=True
        )
    if isinstance(error, httpx.TimeoutException):
        return ConnectionFailedError(
            "deadline_exceeded", f"{what}: no answer in time", retryable=True
        )
    return ConnectionFailedError(
        "connection_lost", f"{what}: the connection broke: {why}", retryable=True
    )


@dataclass
class ServerSentEvent:
    name: str
    data: str
    id: str | None


class EventParser:
    """Server-Sent Events from bytes as they come.

    Lines end at LF or CRLF only: the line separators of Unicode may stand inside JSON.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> Iterator[ServerSentEvent]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            event = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent(self._name, "\n".join(self._data), self._id)
            found = bool(self._data)
            self._name, self._data, self._id = "message", [], None
            return event if found else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return None


# Records of docs/guest-protocol.md, section 5: many files in one body.

RECORD_HEADER = struct.Struct("<BxxxIQ")
RECORD_FILE = 16
RECORD_BYTES = 17
RECORD_FAILED = 18
RECORD_END = 19
RECORD_MAX = 64 * 1024


def record(kind: int, payload: bytes, offset: int = 0) -> bytes:
    return RECORD_HEADER.pack(kind, len(payload), offset) + payload


class RecordParser:
    """Records from bytes as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        self._rest += piece
        at = 0
        while len(self._rest) - at >= RECORD_HEADER.size:
            kind, length, _ = RECORD_HEADER.unpack_from(self._rest, at)
            end = at + RECORD_HEADER.size + length
            if len(self._rest) < end:
                break
            yield kind, bytes(self._rest[at + RECORD_HEADER.size : end])
            at = end
        del self._rest[:at]
