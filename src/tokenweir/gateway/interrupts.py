"""Who stops a request that waits, and how does it know why?

Every wait of a request is ended in one way: its task is cancelled. An ``Interrupt`` remembers the
first cause, so that the one place that catches the cancellation can tell a client that left from an
upstream that is late from a shutdown. Time limits are kept by one sweep over all requests instead
of a timer for each piece of a stream: moving a limit is one assignment.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from tokenweir.core.request import Outcome
from tokenweir.core.units import NS_PER_MS, NS_PER_S, Nanos
from tokenweir.ports.clock import Clock

__all__ = ["Cause", "Interrupt", "Watchdog"]

_SWEEP_NS = 100 * NS_PER_MS
NEVER_NS = 1 << 62


class Cause(Enum):
    """Why a request was stopped."""

    CLIENT_GONE = "client_gone"
    BODY_TIMEOUT = "body_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    CLIENT_STALLED = "client_stalled"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"
    INTERRUPTED = "interrupted"
    PUT_BACK = "put_back"


_LATE = frozenset({Cause.FIRST_BYTE_TIMEOUT, Cause.IDLE_TIMEOUT, Cause.TOTAL_TIMEOUT})


class Interrupt:
    """Stops one request, once.

    Attributes:
        cause: Why it was stopped, None while it was not.
        limit_ns: When it is stopped at the latest.
        limit_cause: Why it is then.
        deadline_ns: When its caller has no use for the answer any more.
        is_over: Set when the request is answered; nothing stops it any more.
    """

    __slots__ = ("_task", "cause", "deadline_ns", "is_over", "limit_cause", "limit_ns")

    def __init__(self, task: asyncio.Task[object]) -> None:
        """Guard a task, without a limit yet."""
        self._task = task
        self.cause: Cause | None = None
        self.is_over = False
        self.limit_ns: Nanos = NEVER_NS
        self.limit_cause = Cause.TOTAL_TIMEOUT
        self.deadline_ns: Nanos = NEVER_NS

    def fire(self, cause: Cause) -> None:
        """Cancel the task; only the first call counts, but being put back is no end."""
        if self.cause in {None, Cause.PUT_BACK} and not self.is_over:
            self.cause = cause
            self._task.cancel()

    @property
    def is_put_back_only(self) -> bool:
        """Whether nothing but being put back cancelled the task, so that it may go on."""
        if self.cause is Cause.PUT_BACK and self._task.cancelling() > 1:
            # Somebody else did too, and did not say why.
            self.cause = None
        return self.cause is Cause.PUT_BACK

    def go_on(self) -> None:
        """Take back the cancellation of a request that was put back."""
        self.cause = None
        self.swallow()

    def limit(self, limit_ns: Nanos, cause: Cause) -> None:
        """Move the limit, and say what it would mean."""
        self.limit_ns = limit_ns
        self.limit_cause = cause

    @property
    def outcome(self) -> Outcome:
        """How a request that did not come to its own end is settled."""
        if self.cause is None or self.cause in _LATE:
            return Outcome.ERROR
        return Outcome.CANCELLED

    def swallow(self) -> None:
        """Take the cancellation back: the task goes on, to say why it stops."""
        while self._task.uncancel():
            pass


class Watchdog:
    """Fires interrupts whose limit has passed, within a tenth of a second. Cost O(requests)."""

    def __init__(self, clock: Clock) -> None:
        """Start with nobody to watch."""
        self._clock = clock
        self._watched: set[Interrupt] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        """Count the requests under way."""
        return len(self._watched)

    def start(self) -> None:
        """Start sweeping on the running loop."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_SWEEP_NS / NS_PER_S, self._sweep)

    def stop(self) -> None:
        """Stop sweeping."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, interrupt: Interrupt) -> None:
        """Watch a request until ``forget``."""
        self._watched.add(interrupt)
        self._is_empty.clear()

    def forget(self, interrupt: Interrupt) -> None:
        """Let go of a request."""
        self._watched.discard(interrupt)
        if not self._watched:
            self._is_empty.set()

    async def wait_empty(self) -> None:
        """Wait until no request is under way."""
        await self._is_empty.wait()

    def fire_all(self, cause: Cause) -> None:
        """Stop every request."""
        for interrupt in tuple(self._watched):
            interrupt.fire(cause)

    def _sweep(self) -> None:
        self.start()
        now_ns = self._clock()
        for interrupt in tuple(self._watched):
            if interrupt.limit_ns <= now_ns:
                interrupt.fire(interrupt.limit_cause)
            elif interrupt.deadline_ns <= now_ns:
                interrupt.fire(Cause.DEADLINE)
