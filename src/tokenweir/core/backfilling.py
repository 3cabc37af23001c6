"""Who may pass the head of the queue without delaying it?

Model: the head needs KV that others hold. They end after b_1 <= b_2 <= ... steps, by the
predictions that the peak test rests on (see ``batch_peak``); t = the fewest of these after which
the head fits on a replica; T = a step's time now.
Rule: the head is promised to start at now + t T on the replica where t is least. Another of its
class passes it if it fits now, its prompt has been read by t, and the head would fit at t with it
there too: since it has ended by then, or since there is room for both. On another replica it may
pass in any case. What holds the head back is a seat, then whoever passes must have ended before the
first that runs. Asked are ``backfill_max`` at most: the next of the head's own line, then the heads
of other tenants'. A promise is given once: later steps count up to that time only, and when it is
over nobody passes any more.
Properties: INV-BACKFILL-1 (where lengths and progress are known and steps take the same time, no
head starts later than promised because of who passed it, but for the step that runs then).
Trade-off: where lengths are only predicted, some heads wait longer for it; and what passes is what
is small, so that large requests get a smaller part of the pool than by strict turns.
Source: EASY backfilling (Lifka, The ANL/IBM SP scheduling system, 1995), with the KV of a running
batch in place of processors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tokenweir.core.account import Account
from tokenweir.core.batch_peak import BatchPeak
from tokenweir.core.capacity import Shortage
from tokenweir.core.cost import Estimate
from tokenweir.core.queues import Head, PoolQueue, QueueEntry
from tokenweir.core.reasons import ReasonCode
from tokenweir.core.request import Priority
from tokenweir.core.units import Nanos

__all__ = ["Backfilling"]


class _Place(Protocol):
    def __call__(
        self,
        estimate: Estimate,
        priority: Priority,
        *,
        tenant: str,
        now_ns: Nanos,
        on: Account | None = None,
    ) -> Account | Shortage:
        """Return the replica that takes a request, or what is missing."""
        ...


class _Start:
    """When the head starts on one replica, if its predictions are right."""

    def __init__(self, account: Account, head: Estimate, *, steps: int, limit: int | None) -> None:
        self.account = account
        self.steps = steps
        profile = account.profile
        self.step_ns: float | None = None
        if profile is not None:
            self.step_ns = account.slowness.ratio * profile.duration_ns(
                tokens=account.in_flight, kv_tokens=account.held_tokens, sequences=account.in_flight
            )
        self._head = head
        # Of KV, None where a seat is what it waits for.
        self._limit = limit

    def is_kept_beside(self, other: Estimate) -> bool:
        """Tell whether the head starts no later with another request there."""
        profile, reading = self.account.profile, 1
        if profile is not None:
            chunk = min(profile.chunk_tokens_max, profile.step_tokens_max)
            reading = max(1, -(-other.unread_tokens // chunk))
        # The first token comes with the last of the prompt; the step that runs may be its or not.
        left = reading + other.output_tokens - self.steps
        if left <= 0:
            return True
        batch, head = self.account.batch, self._head
        if self._limit is None or batch is None or reading > self.steps:
            return False
        held = other.prompt_tokens + self.steps - reading + 1
        rows = ((head.prompt_tokens, head.output_tokens), (held, left))
        return batch.peak_after(self.steps, rows) <= self._limit

    def due_ns(self, *, now_ns: Nanos) -> Nanos | None:
        """Return the promised time, None where nobody knows how long a step takes."""
        if self.step_ns is None or self._limit is None:
            return None
        return now_ns + int(self.steps * self.step_ns)

    def hold_to(self, promised_ns: Nanos, *, now_ns: Nanos) -> None:
        """Count no more steps than there are until a promised time."""
        if self.step_ns is not None:
            self.steps = min(self.steps, int((promised_ns - now_ns) / self.step_ns))


class Backfilling:
    """Finds who may pass."""

    def __init__(
        self,
        queue: PoolQueue,
        *,
        place: _Place,
        is_passed_over: Callable[[QueueEntry], bool],
    ) -> None:
        """Take over nothing.

        Args:
            queue: Who waits.
            place: The dispatch tests.
            is_passed_over: Whether a tenant has as much as it may.
        """
        self._queue = queue
        self._place = place
        self._is_passed_over = is_passed_over

    def next(
        self, head: Head, *, accounts: tuple[Account, ...], now_ns: Nanos
    ) -> tuple[QueueEntry, Account] | None:
        """Return who passes the head now, and where to, or None. Cost O(n log n) per candidate.

        Args:
            head: Who is next and does not fit; it is told its promise.
            accounts: Of the healthy replicas.
            now_ns: Monotonic time.
        """
        entry, count = head.entry, self._queue.limits.backfill_max
        if count == 0 or (entry.promised_ns is not None and now_ns >= entry.promised_ns):
            return None
        candidates = list(self._candidates(entry, count))
        if not candidates:
            return None
        start = self._start(head, accounts, now_ns=now_ns)
        if start is None:
            return None
        if entry.promised_ns is not None:
            start.hold_to(entry.promised_ns, now_ns=now_ns)
        for other in candidates:
            placed = self._place(
                other.estimate, head.admitted_as, tenant=other.request.tenant, now_ns=now_ns
            )
            if not isinstance(placed, Account):
                continue
            if placed is not start.account or start.is_kept_beside(other.estimate):
                if entry.promised_ns is None:
                    entry.promised_ns = start.due_ns(now_ns=now_ns)
                return other, placed
        return None

    def _candidates(self, head: QueueEntry, count: int) -> Iterator[QueueEntry]:
        lines = self._queue.bands[head.band].lines
        own = head.request.tenant
        found = [entry for entry in lines[own].first(count + 1) if entry is not head][:count]
        for tenant, line in lines.items():
            if len(found) == count:
                break
            if tenant != own and not line.is_parked:
                found.append(line.head())
        return (entry for entry in found if not self._is_passed_over(entry))

    def _start(self, head: Head, accounts: tuple[Account, ...], *, now_ns: Nanos) -> _Start | None:
        """Return where and when the head starts, or None where that cannot be told."""
        best: _Start | None = None
        estimate = head.entry.estimate
        for account in accounts:
            missing = self._place(
                estimate,
                head.admitted_as,
                tenant=head.entry.request.tenant,
                now_ns=now_ns,
                on=account,
            )
            if account.batch is None or isinstance(missing, Account):
                continue
            steps, limit = _steps_until(estimate, missing, batch=account.batch, account=account)
            if steps is not None and (best is None or steps < best.steps):
                best = _Start(account, estimate, steps=steps, limit=limit)
        return best


def _steps_until(
    head: Estimate, missing: Shortage, *, batch: BatchPeak, account: Account
) -> tuple[int | None, int | None]:
    """Return after how many steps the head may start, and the KV that it may then fill."""
    if missing.reason is ReasonCode.OVERLOAD_PACE:
        return batch.ends()[0] if len(batch) else None, None
    if missing.reason is not ReasonCode.OVERLOAD_KV:
        return None, None
    limit = missing.limit_tokens - account.draining_tokens - max(0, account.unattributed_tokens)
    rows = ((head.prompt_tokens, head.output_tokens),)
    ends = batch.ends()
    if not ends:
        return None, None
    # When the last has ended the head is alone, and enters whatever it may produce.
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if batch.peak_after(ends[middle], rows) <= limit:
            high = middle
        else:
            low = middle + 1
    return ends[low], limit
