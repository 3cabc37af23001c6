"""What does the driver know of a request that is with an engine?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tokenweir.core.decision import Admit, Reject
from tokenweir.core.request import Outcome, Request, Usage
from tokenweir.core.units import NS_PER_S, Nanos, ReplicaId, ReservationId

if TYPE_CHECKING:
    from tokenweir.driver.pool import PoolDriver

__all__ = ["Flight"]


class Flight:
    """An open reservation in the hands of the one who forwards the request.

    Whoever holds it closes it on every way out, with ``settle`` or ``release``; closing again
    changes nothing, so a ``finally`` may do it blindly.

    Attributes:
        request: What was asked.
        admit: The admission, with replica and reserved tokens.
        queue_wait_ns: How long it was queued, 0 where it entered at once.
        was_queued: Whether it had to wait.
        first_token_ns: When the engine began to answer, None until then.
        output_tokens: Counted so far; the forwarder writes it per chunk, the driver reads it.
        is_begun: Whether its client has got anything of the answer; the forwarder writes it.
        again: Where its next flight, or its refusal, will be given when it was put back.
        interrupted: What its client has to be told when it was stopped for a more urgent one.
        on_interrupt: Called when either has happened; the forwarder stops then.
        is_streamed: False where nothing can be counted before the end.
        is_open: Whether it has still to be closed.
        is_lost: Whether its lease ran out, so that its hold has been taken back already.
    """

    __slots__ = (
        "_driver",
        "admit",
        "again",
        "arrived_ns",
        "dispatched_ns",
        "first_token_ns",
        "interrupted",
        "is_begun",
        "is_lost",
        "is_open",
        "is_streamed",
        "on_interrupt",
        "output_tokens",
        "queue_wait_ns",
        "renewed_ns",
        "reported_tokens",
        "request",
        "was_queued",
    )

    def __init__(
        self,
        driver: PoolDriver,
        request: Request,
        *,
        admit: Admit,
        queue_wait_ns: Nanos,
        was_queued: bool,
        dispatched_ns: Nanos,
    ) -> None:
        """Start open, nothing counted."""
        self._driver = driver
        self.first_token_ns: Nanos | None = None
        self.request = request
        self.admit = admit
        self.queue_wait_ns = queue_wait_ns
        self.was_queued = was_queued
        self.arrived_ns = dispatched_ns - queue_wait_ns
        self.dispatched_ns = dispatched_ns
        self.renewed_ns = dispatched_ns
        self.is_streamed = False
        self.is_open = True
        self.is_lost = False
        self.is_begun = False
        self.again: asyncio.Future[Flight | Reject] | None = None
        self.interrupted: Reject | None = None
        self.on_interrupt: Callable[[], None] | None = None
        self.output_tokens = 0
        self.reported_tokens = 0

    @property
    def reservation_id(self) -> ReservationId:
        """Id of the reservation it holds."""
        return self.admit.reservation_id

    @property
    def replica(self) -> ReplicaId:
        """Where it runs."""
        return self.admit.replica

    def progress_tokens(self, *, now_ns: Nanos, pace_tokens_per_s: float) -> int:
        """Return output tokens so far: counted, or guessed from the pace where nobody can count."""
        if self.is_streamed:
            return self.output_tokens
        elapsed_ns = now_ns - self.dispatched_ns
        guessed = int(elapsed_ns * pace_tokens_per_s / NS_PER_S)
        return min(guessed, self.request.output_tokens_max)

    @property
    def is_stopped(self) -> bool:
        """Whether it was interrupted, so that it is closed and goes on elsewhere or not at all."""
        return self.again is not None or self.interrupted is not None

    def first_token(self) -> None:
        """Note that the engine has begun to answer; only the first call counts."""
        if self.first_token_ns is None and self.is_open:
            self.first_token_ns = self._driver.note_first_token(self)

    def note_prompt(self, prompt_tokens: int) -> None:
        """Note how long its prompt was as the engine counted it, to be told beside the estimate."""
        self._driver.note_prompt(self, prompt_tokens)

    def settle(self, usage: Usage, *, outcome: Outcome) -> None:
        """Close it with what was really used; nothing happens where it is closed already."""
        if self.is_open:
            self.is_open = False
            self._driver.settle(self, usage, outcome=outcome)

    def release(self) -> None:
        """Close it as never used by an engine; nothing happens where it is closed already."""
        if self.is_open:
            self.is_open = False
            self._driver.release(self)
