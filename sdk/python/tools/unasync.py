#!/usr/bin/env python3
"""Makes src/caisson/_sync.py from src/caisson/_async.py, so that both clients say the same.

usage: tools/unasync.py [--check]      --check only says whether the file is up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "caisson" / "_async.py"
TARGET = SOURCE.with_name("_sync.py")

# In this order; \b keeps parts of longer names.
RULES = [
    (r'"""The async client\.\n\n.*?"""', '"""The client that blocks.\n\nMade from _async.py by '
     'tools/unasync.py; change that one.\n"""'),
    (r"A Caisson server, for asyncio\.", "A Caisson server."),
    (r"A client may be used in several event loops; each gets its own connections\.",
     "A client may be used by several threads, inside a running event loop (which it blocks), "
     "and\n    after a fork: the child makes its own connections."),
    (r"this process and event loop", "this process"),
    (r" Cancelling this call ends the command\.", " An exception in here ends the command."),
    (r"import asyncio\n", ""),
    (r"from collections\.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping",
     "from collections.abc import Callable, Iterable, Iterator, Mapping"),
    (r" \| AsyncIterable\[bytes\]", ""),
    (r"\bAsyncLock, AsyncTransport\b", "SyncLock, SyncTransport"),
    (r"\bAsyncLock\b", "SyncLock"),
    (r"\bAsyncTransport\b", "SyncTransport"),
    (r"\bAsyncExitStack\b", "ExitStack"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
]  # fmt: skip


def main() -> int:
    text = SOURCE.read_text()
    for pattern, replacement in RULES:
        text, count = re.subn(pattern, replacement, text, flags=re.DOTALL)
        if count == 0:
            print(f"unasync: nothing in {SOURCE.name} matches {pattern!r}", file=sys.stderr)
            return 1
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != text:
            print(f"{TARGET.name} is not what tools/unasync.py makes; run it", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
