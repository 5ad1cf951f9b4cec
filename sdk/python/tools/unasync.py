#!/usr/bin/env python3
"""Makes the package src/caisson/_sync from src/caisson/_async, so that both clients say the same.

usage: tools/unasync.py [--check]      --check only says whether the package is up to date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "caisson" / "_async"
TARGET = SOURCE.with_name("_sync")
HEADER = "# Made from _async/{name} by tools/unasync.py; change that one.\n"

# In this order; \b keeps parts of longer names. Each must be of use somewhere.
RULES = [
    (r'"""The client for asyncio\.\n\n.*?"""', '"""The client that blocks."""'),
    (r"A Caisson server, for asyncio\.", "A Caisson server."),
    (r"A client may be used in several event loops; each gets its own connections\.",
     "A client may be used by several threads, inside a running event loop (which it blocks), "
     "and\n    after a fork: the child makes its own connections."),
    (r"this process and event loop", "this process"),
    (r" Cancelling this call ends the command\.", " An exception in here ends the command."),
    (r"import asyncio\n", "import time\n"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bAsyncIterable, Iterable\b", "Iterable"),
    (r" \| AsyncIterable\[bytes\]", ""),
    (r"\bAsync(Lock|Transport)\b", r"Sync\1"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\benter_async_context\b", "enter_context"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\baclose\b", "close"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
]  # fmt: skip


def main() -> int:
    uses = [0] * len(RULES)
    made = {}
    for source in sorted(SOURCE.glob("*.py")):
        text = source.read_text()
        for at, (pattern, replacement) in enumerate(RULES):
            text, count = re.subn(pattern, replacement, text, flags=re.DOTALL)
            uses[at] += count
        made[source.name] = HEADER.format(name=source.name) + text
    for (pattern, _), count in zip(RULES, uses, strict=True):
        if count == 0:
            print(f"unasync: nothing in {SOURCE.name} matches {pattern!r}", file=sys.stderr)
            return 1
    there = {path.name: path.read_text() for path in TARGET.glob("*.py")}
    if "--check" in sys.argv[1:]:
        if there != made:
            print(f"{TARGET.name} is not what tools/unasync.py makes; run it", file=sys.stderr)
            return 1
        return 0
    TARGET.mkdir(exist_ok=True)
    for name in there.keys() - made.keys():
        (TARGET / name).unlink()
    for name, text in made.items():
        (TARGET / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
