"""What calls are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .._http import Call, encode_json
from ..types import Page, make

T = TypeVar("T")

JSON = {"Content-Type": "application/json"}
STREAM = {**JSON, "Accept": "text/event-stream"}
TRANSFER_SECONDS = 600.0


def json_call(
    method: str, path: str, body: Mapping[str, Any], parse: Callable[[Any], T]
) -> Call[T]:
    return Call(
        method, path, lambda answer: parse(answer.json()), body=encode_json(body), headers=JSON
    )


def get_call(target: str, parse: Callable[[Any], T], /, **query: Any) -> Call[T]:
    return Call("GET", target, lambda answer: parse(answer.json()), query=query)


def one(cls: type[T]) -> Callable[[Any], T]:
    return lambda data: make(cls, data)


def page(cls: type[T]) -> Callable[[Any], Page[T]]:
    return lambda data: Page(
        [make(cls, item) for item in data["items"]], data.get("next_cursor") or None
    )


def with_key(call: Call[T], key: str | None) -> Call[T]:
    if key is None:
        return call
    return replace(call, headers={**call.headers, "Idempotency-Key": key})
