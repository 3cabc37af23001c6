"""May a request that does not fit now wait, and as what?

Rule: it waits where there is a place for it and it will be in time (see ``waiting``), or where
somebody gives way to it (see ``interrupting``). A full queue has a place for whom it would displace
another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tokenweir.core.admitter_config import AdmitterConfig
from tokenweir.core.capacity import Shortage
from tokenweir.core.interrupting import Interrupting
from tokenweir.core.queues import Ahead, PoolQueue, QueueEntry
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.waiting import PoolLook, Prospect, WaitTest

__all__ = ["Joining", "NoPlace"]


@dataclass(frozen=True, slots=True)
class NoPlace:
    """Why it may not wait, and what would have been served before it, None for all that waits."""

    reason: ReasonCode
    ahead: Ahead | None = None


class Joining:
    """The way into a pool's queue."""

    def __init__(
        self,
        config: AdmitterConfig,
        *,
        queue: PoolQueue,
        waits: WaitTest,
        interrupting: Interrupting,
    ) -> None:
        """Take over nothing: what is asked here is carried out by the owner.

        Args:
            config: Bounds.
            queue: Where to.
            waits: Whether it will be in time.
            interrupting: Who gives way.
        """
        self._config = config
        self._queue = queue
        self._waits = waits
        self._interrupting = interrupting

    def ask(
        self,
        entry: QueueEntry,
        shortage: Shortage,
        *,
        look: PoolLook,
        wait_fraction: Callable[[], float],
    ) -> Prospect | NoPlace:
        """Set an entry's times, and return what it can expect, or why it may not wait.

        Args:
            entry: Who would wait, from now on.
            shortage: Why it does not enter.
            look: At the pool.
            wait_fraction: Returns the part of the time to its first token that may be waited.
        """
        queue, request, estimate = self._queue, entry.request, entry.estimate
        if queue.limits.items_max == 0:
            return NoPlace(shortage.reason)
        priority = request.priority
        if not queue.has_room(estimate, priority) and (
            queue.displaceable(estimate, priority=priority, tenant=request.tenant) is None
        ):
            return NoPlace(ReasonCode.QUEUE_FULL)
        expect = partial(
            self._waits.prospect,
            entry,
            queue,
            slo_fraction=self._config.guards.slo_fraction,
            wait_fraction=wait_fraction(),
        )
        prospect = expect(look=look)
        self._waits.note(is_refused=not prospect.is_in_time)
        if prospect.is_in_time and prospect.is_before_deadline:
            return prospect
        if self._interrupting.could_help(request, shortage, ahead=prospect.ahead):
            # No service rate tells how long that takes.
            freed_ns = self._interrupting.time_ns
            helped = expect(look=replace(look, rate_tokens_per_s=None))
            if helped.is_in_time and entry.expires_ns > entry.enqueued_ns + freed_ns:
                entry.is_pressing = True
                return replace(helped, wait_ns=freed_ns)
        in_time = prospect.is_in_time
        reason = ReasonCode.DEADLINE_UNREACHABLE if in_time else shortage.reason
        return NoPlace(reason, prospect.ahead)
