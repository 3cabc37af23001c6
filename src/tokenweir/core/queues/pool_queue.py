"""Who waits for a pool, who is next, and who is dropped?

Model: four bands by class, each with its tenants' lines; D = sum of the estimates that wait.
Rule: the most urgent class with anybody waiting is served. A class below it with a floor f collects
f of every token that is dispatched while it waits, and is served once that covers its head.
An entry that has waited half of what its class may is promoted, by one class and once: were it
promoted on, a flood of the least urgent class would in the end be one of the most urgent. The floor
of the class that it comes to sees to it that it is served. Where the queue is full, a newcomer may
take the place of the last of a less urgent class, or of the tenant that has most waiting for its
weight, if that stays the richer one of the two.
Properties: INV-QUEUE-1 (items, debt and wait never exceed their bounds), INV-QUEUE-2 (sums are sums
over entries). The head is never skipped for a request that fits better, but by backfilling where
that is turned on (see ``backfilling``).
Trade-off: strict order lets a large head hold back small ones that would fit.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ContractError, InvariantError
from tokenweir.core.fairness import Fairness
from tokenweir.core.queues.band import Ahead, Band
from tokenweir.core.queues.entry import Key, QueueEntry
from tokenweir.core.queues.limits import QueueLimits
from tokenweir.core.queues.orderings import Ordering
from tokenweir.core.request import PRIORITIES, Priority
from tokenweir.core.tenants import TenantConfig
from tokenweir.core.units import Nanos, TicketId

__all__ = ["Head", "PoolQueue"]

# Bound of what a class collects while its head cannot enter.
_CREDIT_TOKENS_MAX = 1_000_000
# When, for which arrival, under which ticket.
_Alarm: TypeAlias = tuple[Nanos, int, TicketId]


@dataclass(frozen=True, slots=True)
class Head:
    """Who is next, and with which class's ceiling it may enter."""

    entry: QueueEntry
    admitted_as: Priority


class PoolQueue:
    """The bounded queue of one pool."""

    def __init__(
        self,
        limits: QueueLimits,
        *,
        fairness: Callable[[], Fairness],
        ordering: Ordering,
        tenants: TenantConfig,
    ) -> None:
        """Start empty.

        Args:
            limits: How much may wait.
            fairness: Makes the row that chooses among the tenants of a class.
            ordering: Order inside a tenant.
            tenants: Their weights.
        """
        self.limits = limits
        self.sums = Ahead()
        # In order of arrival; read by the owner, written here only.
        self.entries: dict[TicketId, QueueEntry] = {}
        self.bands = {priority: Band(fairness()) for priority in Priority}
        # Nobody who waits in these is next; set by the owner.
        self.paused: frozenset[Priority] = frozenset()
        self._ordering = ordering
        self._tenants = tenants
        self._credit_tokens = dict.fromkeys(Priority, 0.0)
        # Entries that have left stay until they come up.
        self._expiries: list[_Alarm] = []
        self._promotions: list[_Alarm] = []
        self._sequence = 0

    def __len__(self) -> int:
        """Count what waits."""
        return len(self.entries)

    def __contains__(self, ticket_id: object) -> bool:
        """Whether the ticket still waits."""
        return ticket_id in self.entries

    @property
    def debt_tokens(self) -> int:
        """Sum of the estimates that wait."""
        return int(self.sums.debt_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Sum of the prompt tokens that wait to be read."""
        return int(self.sums.prompt_tokens)

    # --- coming and going ---------------------------------------------------------------------

    def has_room(self, estimate: Estimate, priority: Priority = Priority.P1) -> bool:
        """Tell whether one more entry keeps items and debt within their bounds."""
        return self._has_room(estimate, priority, leaving=None)

    def displaceable(
        self, estimate: Estimate, *, priority: Priority, tenant: str
    ) -> QueueEntry | None:
        """Return who would have to leave a full queue for a newcomer; see the rule."""
        for below in reversed(PRIORITIES):
            if below <= priority:
                break
            richest = self.bands[below].richest()
            if richest is not None:
                tail = richest[1].tail()
                return tail if self._has_room(estimate, priority, leaving=tail) else None
        band = self.bands[priority]
        richest = band.richest()
        if richest is None or richest[0] == tenant:
            return None
        own, weight = band.lines.get(tenant), self._tenants.of(tenant).weight
        charge = band.fairness.charge_of(
            prompt_tokens=estimate.unread_tokens, output_tokens=estimate.output_tokens
        )
        mine = (charge + (own.charge if own else 0.0)) / weight
        if richest[1].charge / richest[1].weight <= mine:
            return None
        tail = richest[1].tail()
        return tail if self._has_room(estimate, priority, leaving=tail) else None

    def push(self, entry: QueueEntry) -> None:
        """Let an entry wait.

        Raises:
            ContractError: There is no room, or the ticket waits already; nothing is changed.
        """
        if entry.ticket_id in self.entries:
            raise ContractError(f"ticket {entry.ticket_id} waits already")
        priority = entry.request.priority
        if not self.has_room(entry.estimate, priority):
            raise ContractError(f"queue is full at {len(self.entries)} items, ask has_room first")
        entry.band, entry.key = priority, self._key(entry)
        self._sequence += 1
        self.entries[entry.ticket_id] = entry
        self.sums.add_entry(entry)
        self._band_push(entry)
        heapq.heappush(self._expiries, (entry.expires_ns, entry.key[2], entry.ticket_id))
        if priority > Priority.P0:
            self._schedule_promotion(entry)

    def remove(self, ticket_id: TicketId) -> QueueEntry | None:
        """Take an entry out, whatever its place; None where it no longer waits."""
        entry = self._forget(ticket_id)
        if entry is not None:
            self.bands[entry.band].remove(entry)
        return entry

    def pop_expired(self, *, now_ns: Nanos) -> QueueEntry | None:
        """Take out one entry whose time is over, the longest overdue first."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            entry = self._waiting(heapq.heappop(self._expiries))
            if entry is not None:
                return self.remove(entry.ticket_id)
        return None

    def promote(self, *, now_ns: Nanos) -> None:
        """Move up by one class whoever has waited half of what its class may."""
        while self._promotions and self._promotions[0][0] <= now_ns:
            entry = self._waiting(heapq.heappop(self._promotions))
            if entry is None:
                continue
            self.bands[entry.band].remove(entry)
            entry.band = Priority(entry.band - 1)
            self._band_push(entry)

    def next_expiry_ns(self) -> Nanos | None:
        """Return when the next entry runs out of time, or None.

        Promotions wake nobody: they matter when something has become free, which does.
        """
        self._expiries = self._without_gone(self._expiries)
        return self._expiries[0][0] if self._expiries else None

    # --- who is next --------------------------------------------------------------------------

    def head(self) -> Head | None:
        """Return who is next, or None."""
        top: Head | None = None
        for priority, band in self.bands.items():
            if not band.lines or priority in self.paused:
                continue
            entry = band.head()
            if entry is None:
                continue
            if top is None:
                top = Head(entry, priority)
            elif self._credit_tokens[priority] >= entry.estimate.tokens:
                return Head(entry, top.admitted_as)
        return top

    def take(self, entry: QueueEntry) -> None:
        """Take out the head because it enters, and credit those below who wait on."""
        self._forget(entry.ticket_id)
        self.bands[entry.band].take(entry)
        tokens, credit = entry.estimate.tokens, self._credit_tokens
        for priority, band in self.bands.items():
            floor = self.limits.classes[priority].floor_fraction
            if not band.lines:
                credit[priority] = 0.0
            elif floor > 0:
                credit[priority] = min(credit[priority] + floor * tokens, _CREDIT_TOKENS_MAX)
        credit[entry.band] = max(0.0, credit[entry.band] - tokens)

    def park(self, entry: QueueEntry) -> None:
        """Pass a tenant of a class over until ``unpark``."""
        self.bands[entry.band].park(entry.request.tenant)

    def unpark(self) -> None:
        """Let those who were passed over take part again."""
        for band in self.bands.values():
            band.unpark()

    def ahead_of(self, entry: QueueEntry) -> Ahead:
        """Return what would be served before a newcomer, as far as can be told now."""
        request = entry.request
        ahead = Ahead()
        for priority in PRIORITIES:
            if priority >= request.priority:
                break
            ahead.add(self.bands[priority].sums)
        weight, key = self._tenants.of(request.tenant).weight, self._key(entry)
        ahead.add(self.bands[request.priority].ahead_of(request.tenant, key, weight=weight))
        return ahead

    def behind(self, entry: QueueEntry) -> list[QueueEntry]:
        """Return who of its tenant and class would be served after a newcomer, in order."""
        line = self.bands[entry.request.priority].lines.get(entry.request.tenant)
        return [] if line is None else line.behind(self._key(entry))

    def waiting_tenants(self, priority: Priority) -> int:
        """Count the tenants that wait in a class."""
        return len(self.bands[priority].lines)

    # --- checking -----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Recount. Cost O(n).

        Raises:
            InvariantError: INV-QUEUE-1 or INV-QUEUE-2 does not hold.
        """
        entries = self.entries.values()
        debt = sum(entry.estimate.tokens for entry in entries)
        if debt != self.debt_tokens:
            raise InvariantError(
                f"queue says debt {self.debt_tokens}, its entries add up to {debt}"
            )
        prompts = sum(entry.estimate.unread_tokens for entry in entries)
        if prompts != self.prompt_tokens:
            raise InvariantError(
                f"queue says {self.prompt_tokens} prompt tokens, its entries add up to {prompts}"
            )
        in_bands = sum(len(line.entries) for b in self.bands.values() for line in b.lines.values())
        if in_bands != len(self.entries):
            raise InvariantError(f"queue has {len(self.entries)} entries, its bands {in_bands}")
        self._check_bounds()

    def _check_bounds(self) -> None:
        limits, debt = self.limits, self.debt_tokens
        if len(self.entries) > limits.items_max:
            raise InvariantError(
                f"queue holds {len(self.entries)} items, its bound is {limits.items_max}"
            )
        if limits.debt_tokens_max is not None and debt > limits.debt_tokens_max:
            raise InvariantError(
                f"queue holds {debt} tokens, its bound is {limits.debt_tokens_max}"
            )
        for entry in self.entries.values():
            bound_ns = limits.wait_ns_max_of(entry.request.priority)
            if entry.expires_ns - entry.enqueued_ns > bound_ns:
                raise InvariantError(
                    f"ticket {entry.ticket_id} may wait "
                    f"{entry.expires_ns - entry.enqueued_ns} ns, the bound is {bound_ns} ns"
                )

    # --- parts --------------------------------------------------------------------------------

    def _has_room(
        self, estimate: Estimate, priority: Priority, *, leaving: QueueEntry | None
    ) -> bool:
        limits, of_class = self.limits, self.limits.classes[priority]
        gone_items = 0 if leaving is None else 1
        gone_tokens = 0 if leaving is None else leaving.estimate.tokens
        if len(self.entries) - gone_items >= limits.items_max:
            return False
        debt = self.sums.debt_tokens - gone_tokens + estimate.tokens
        if limits.debt_tokens_max is not None and debt > limits.debt_tokens_max:
            return False
        if of_class.items_max is None and of_class.debt_tokens_max is None:
            return True
        sums = self.bands[priority].sums
        if leaving is not None and leaving.band != priority:
            gone_items = gone_tokens = 0
        if of_class.items_max is not None and sums.items - gone_items >= of_class.items_max:
            return False
        debt = sums.debt_tokens - gone_tokens + estimate.tokens
        return of_class.debt_tokens_max is None or debt <= of_class.debt_tokens_max

    def _key(self, entry: QueueEntry) -> Key:
        """Return a newcomer's key."""
        return (not entry.is_returning, self._ordering(entry), self._sequence + 1)

    def _band_push(self, entry: QueueEntry) -> None:
        weight = self._tenants.of(entry.request.tenant).weight
        self.bands[entry.band].push(entry, weight=weight)

    def _forget(self, ticket_id: TicketId) -> QueueEntry | None:
        """Take an entry out of everything but its band."""
        entry = self.entries.pop(ticket_id, None)
        if entry is not None:
            self.sums.add_entry(entry, -1)
            if not self.entries:
                # Sums of floats must not drift over a long life.
                self.sums = Ahead()
            self._expiries = self._without_gone(self._expiries)
            self._promotions = self._without_gone(self._promotions)
        return entry

    def _schedule_promotion(self, entry: QueueEntry) -> None:
        due_ns = entry.enqueued_ns + self.limits.wait_ns_max_of(entry.request.priority) // 2
        if due_ns < entry.expires_ns:
            heapq.heappush(self._promotions, (due_ns, entry.key[2], entry.ticket_id))

    def _waiting(self, row: _Alarm) -> QueueEntry | None:
        """Return whom an alarm is for, or None where it has left; a ticket may come again."""
        entry = self.entries.get(row[2])
        return entry if entry is not None and entry.key[2] == row[1] else None

    def _without_gone(self, heap: list[_Alarm]) -> list[_Alarm]:
        while heap and self._waiting(heap[0]) is None:
            heapq.heappop(heap)
        # Entries that leave from the middle would pile up behind a long-lived head.
        if len(heap) > 2 * len(self.entries) + 64:
            heap = [row for row in heap if self._waiting(row) is not None]
            heapq.heapify(heap)
        return heap
