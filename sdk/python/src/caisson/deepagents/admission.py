"""One sandbox that many calls use at once, and that one of them at a time makes or ends.

Calls share the sandbox; making and ending it is exclusive. A call that leaves it in an unknown
state dooms it: no other call is let in, the last one that leaves starts its end, and who comes
later waits and gets a new one. The end runs in a thread of its own, so that no reply waits for it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from enum import Enum

from .._transport import SyncLock
from ..types import SandboxInfo

log = logging.getLogger("caisson")


class Turn(Enum):
    MAKE = "make"  # nobody has made it: the caller does, and says so with `made`
    CLOSED = "closed"


class Admission:
    def __init__(
        self, dispose: Callable[[SandboxInfo], bool], attached: SandboxInfo | None = None
    ) -> None:
        self._dispose = dispose  # ends a sandbox; whether that is confirmed
        self._lock = SyncLock()
        self._pid = os.getpid()
        self._info = attached
        self._owned = False  # made by this process, here
        self._inside = 0
        self._changing = False  # it is being made or ended
        self._doomed = False
        self._closed = False
        self._left_behind = False  # closed while calls were inside
        self._unconfirmed = False  # the end of an earlier sandbox
        self._waiters: list[Future[None]] = []

    @property
    def info(self) -> SandboxInfo | None:
        return self._info

    @property
    def inside(self) -> int:
        return self._inside

    def enter(self) -> SandboxInfo | Turn | Future[None]:
        """The sandbox, to be left with `leave`; or a turn; or what to wait for before trying
        again."""
        with self._lock:
            self._after_fork()
            if self._closed:
                return Turn.CLOSED
            if self._changing or self._doomed:
                return self._waiter()
            if self._info is None:
                self._changing = True
                return Turn.MAKE
            self._inside += 1
            return self._info

    def made(self, info: SandboxInfo | None) -> None:
        """Ends a turn to make it. Who made one is inside then."""
        with self._lock:
            self._changing = False
            if info is not None:
                self._info, self._owned, self._inside = info, True, 1
            self._wake()

    def leave(self, doom: bool) -> None:
        with self._lock:
            self._inside -= 1
            self._doomed = self._doomed or doom
            due = None
            # After a close that did not wait so long, what was being made then ends here.
            over = self._doomed or self._left_behind
            if over and self._inside == 0 and not self._changing and self._info:
                if self._owned:
                    self._changing = True
                    due = self._info
                else:  # a parent's: not used again, and not ended
                    self._info, self._doomed = None, False
            self._wake()
        if due is None:
            return
        thread = threading.Thread(target=self._end, args=(due,), name="caisson-dispose")
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends and starts no threads
            self._end(due)

    def _end(self, info: SandboxInfo) -> None:
        gone = False
        try:
            gone = self._dispose(info)
        finally:
            if not gone:
                log.warning("the end of sandbox %s is not confirmed", info.id)
            with self._lock:
                self._unconfirmed = self._unconfirmed or not gone
                self._info, self._changing, self._doomed = None, False, False
                self._wake()

    def start_close(self) -> Future[None] | None:
        """Lets nobody in any more. What to wait for before trying again, or nothing: it is the
        caller's now, to be ended by `finish_close`."""
        with self._lock:
            self._after_fork()
            self._closed = True
            if self._changing or self._inside > 0:
                return self._waiter()
            return None

    def finish_close(self) -> tuple[SandboxInfo | None, bool]:
        """What the caller must end now, and whether all ends before were confirmed."""
        with self._lock:
            due = self._info if self._owned else None
            self._info = None
            self._left_behind = self._changing or self._inside > 0
            return due, not self._unconfirmed

    def not_confirmed(self, info: SandboxInfo) -> None:
        """What `finish_close` gave is not known to be gone; the next close tries again."""
        with self._lock:
            self._info = info

    def _waiter(self) -> Future[None]:
        # One for each: a task that is cancelled cancels what it waits for.
        waiter: Future[None] = Future()
        self._waiters.append(waiter)
        return waiter

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            try:
                waiter.set_result(None)
            except InvalidStateError:
                pass

    def _after_fork(self) -> None:
        """A child uses its parent's sandbox, but neither waits for the parent's threads, which
        it does not have, nor ends what it has not made."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        if self._doomed or self._changing:
            self._info = None
        self._owned = self._changing = self._doomed = False
        self._inside, self._waiters = 0, []
