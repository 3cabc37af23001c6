"""Which waiting request of one class is next?

Model: each tenant has a line, ordered by key; the fairness row says whose line is served.
Properties: INV-QUEUE-2 (the sums of a line and of a band are those of their entries).
Trade-off: an entry that leaves from the middle stays in its line's heap until it comes up or half
of the heap is of the gone; taking out costs no walk.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tokenweir.core.fairness import Fairness
from tokenweir.core.profile import attention_pairs
from tokenweir.core.queues.entry import Key, QueueEntry
from tokenweir.core.units import TicketId

__all__ = ["Ahead", "Band", "Line"]


@dataclass(slots=True)
class Ahead:
    """What will be served before a request: entries, their estimates, and what is to be read."""

    items: float = 0.0
    debt_tokens: float = 0.0
    prompt_tokens: float = 0.0
    attention_pairs: float = 0.0

    def add(self, other: Ahead, fraction: float = 1.0) -> None:
        """Add a part of what waits elsewhere."""
        self.items += other.items * fraction
        self.debt_tokens += other.debt_tokens * fraction
        self.prompt_tokens += other.prompt_tokens * fraction
        self.attention_pairs += other.attention_pairs * fraction

    def add_entry(self, entry: QueueEntry, sign: int = 1) -> None:
        """Add one entry, or take it away."""
        estimate = entry.estimate
        self.items += sign
        self.debt_tokens += sign * estimate.tokens
        self.prompt_tokens += sign * estimate.unread_tokens
        self.attention_pairs += sign * attention_pairs(
            estimate.prompt_tokens, cached_tokens=estimate.cached_tokens
        )


class Line:
    """One tenant's entries of one class."""

    __slots__ = ("charge", "entries", "heap", "is_parked", "key_max", "sums", "weight")

    def __init__(self, *, weight: float) -> None:
        """Start empty."""
        self.weight = weight
        self.entries: dict[TicketId, QueueEntry] = {}
        self.heap: list[tuple[Key, TicketId]] = []
        self.sums = Ahead()
        # Nobody here has a larger one.
        self.key_max: Key = (False, float("-inf"), 0)
        # In the units of the fairness row.
        self.charge = 0.0
        self.is_parked = False

    def push(self, entry: QueueEntry) -> None:
        """Put an entry in its place."""
        self.entries[entry.ticket_id] = entry
        heapq.heappush(self.heap, (entry.key, entry.ticket_id))
        self.key_max = max(self.key_max, entry.key)
        self.sums.add_entry(entry)

    def remove(self, entry: QueueEntry) -> None:
        """Take an entry out."""
        del self.entries[entry.ticket_id]
        self.sums.add_entry(entry, -1)
        heap = self.heap
        while heap and self._is_gone(heap[0]):
            heapq.heappop(heap)
        if len(heap) > 2 * len(self.entries) + 16:
            self.heap = [row for row in heap if not self._is_gone(row)]
            heapq.heapify(self.heap)

    def _is_gone(self, row: tuple[Key, TicketId]) -> bool:
        """Tell whether an entry has left; a ticket may come again, with another key."""
        entry = self.entries.get(row[1])
        return entry is None or entry.key != row[0]

    def head(self) -> QueueEntry:
        """Return the entry with the smallest key; the line is not empty."""
        return self.entries[self.heap[0][1]]

    def first(self, count: int) -> list[QueueEntry]:
        """Return the entries with the smallest keys, in order. Cost O(count log count)."""
        heap = self.heap
        found: list[QueueEntry] = []
        # Rows whose parents have been looked at: none before them is smaller.
        edge = [(heap[0], 0)] if heap else []
        while edge and len(found) < count:
            (_, ticket_id), place = heapq.heappop(edge)
            if ticket_id in self.entries:
                found.append(self.entries[ticket_id])
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heapq.heappush(edge, (heap[child], child))
        return found

    def tail(self) -> QueueEntry:
        """Return the entry with the largest key. Cost O(n)."""
        return max(self.entries.values(), key=lambda entry: entry.key)

    def before(self, key: Key) -> Ahead:
        """Return what enters before a newcomer. Cost O(1) where it is the last, else O(n)."""
        if key > self.key_max:
            return self.sums
        ahead = Ahead()
        for entry in self.entries.values():
            if entry.key < key:
                ahead.add_entry(entry)
        return ahead

    def behind(self, key: Key) -> list[QueueEntry]:
        """Return who enters after a newcomer, in order. Cost O(1) where it is the last."""
        if key > self.key_max:
            return []
        later = [entry for entry in self.entries.values() if entry.key > key]
        return sorted(later, key=lambda entry: entry.key)


class Band:
    """The lines of one class."""

    def __init__(self, fairness: Fairness) -> None:
        """Start empty."""
        self.fairness = fairness
        self.lines: dict[str, Line] = {}
        self.sums = Ahead()
        self._parked: list[str] = []

    def __len__(self) -> int:
        """Count what waits."""
        return int(self.sums.items)

    def push(self, entry: QueueEntry, *, weight: float) -> None:
        """Let an entry wait."""
        tenant = entry.request.tenant
        line = self.lines.get(tenant)
        if line is None:
            line = self.lines[tenant] = Line(weight=weight)
            line.push(entry)
            self.fairness.join(tenant, weight=weight, arrival=entry.key[2])
        else:
            line.push(entry)
            if not line.is_parked and line.heap[0][1] == entry.ticket_id:
                self.fairness.head(tenant, arrival=entry.key[2])
        line.charge += self._charge_of(entry)
        self.sums.add_entry(entry)

    def remove(self, entry: QueueEntry) -> None:
        """Take an entry out, whatever its place."""
        tenant = entry.request.tenant
        line = self.lines[tenant]
        was_head = line.heap[0][1] == entry.ticket_id
        line.remove(entry)
        line.charge -= self._charge_of(entry)
        self.sums.add_entry(entry, -1)
        if not line.entries:
            del self.lines[tenant]
            if line.is_parked:
                self._parked.remove(tenant)
            else:
                self.fairness.leave(tenant)
        elif was_head and not line.is_parked:
            self.fairness.head(tenant, arrival=line.heap[0][0][2])
        if not self.lines:
            # Sums of floats must not drift over a long life.
            self.sums = Ahead()

    def head(self) -> QueueEntry | None:
        """Return the entry that is next, or None where nobody waits but who is parked."""
        tenant = self.fairness.next()
        return None if tenant is None else self.lines[tenant].head()

    def take(self, entry: QueueEntry) -> None:
        """Take out the head because it enters."""
        self.fairness.turn(entry.request.tenant)
        self.remove(entry)

    def park(self, tenant: str) -> None:
        """Pass a tenant over until ``unpark``: it has as much as it may."""
        line = self.lines[tenant]
        line.is_parked = True
        self._parked.append(tenant)
        self.fairness.leave(tenant)

    def unpark(self) -> None:
        """Let those who were passed over take part again."""
        for tenant in self._parked:
            line = self.lines[tenant]
            line.is_parked = False
            self.fairness.join(tenant, weight=line.weight, arrival=line.heap[0][0][2])
        self._parked.clear()

    def ahead_of(self, tenant: str, key: Key, *, weight: float) -> Ahead:
        """Return what a request of this tenant would wait for. Cost O(waiting tenants)."""
        ahead = Ahead()
        own = self.lines.get(tenant)
        own_charge = 0.0
        if own is not None:
            before = own.before(key)
            ahead.add(before)
            own_charge = own.charge * (before.items / len(own.entries))
        # Summed here, not by ``add``: with many tenants this loop is most of a decision.
        items, debt = ahead.items, ahead.debt_tokens
        prompts, pairs = ahead.prompt_tokens, ahead.attention_pairs
        level = self.fairness.level(tenant, weight=weight, own_charge=own_charge)
        lines = self.lines
        for line, units in zip(
            lines.values(), self.fairness.units_before(level, lines), strict=True
        ):
            charge = line.charge
            if units <= 0 or charge <= 0 or line is own:
                continue
            fraction = units / charge if units < charge else 1.0
            sums = line.sums
            items += sums.items * fraction
            debt += sums.debt_tokens * fraction
            prompts += sums.prompt_tokens * fraction
            pairs += sums.attention_pairs * fraction
        return Ahead(items, debt, prompts, pairs)

    def richest(self) -> tuple[str, Line] | None:
        """Return who has most waiting for its weight. Cost O(waiting tenants)."""
        if not self.lines:
            return None
        return max(self.lines.items(), key=lambda row: row[1].charge / row[1].weight)

    def _charge_of(self, entry: QueueEntry) -> float:
        estimate = entry.estimate
        return self.fairness.charge_of(
            prompt_tokens=estimate.unread_tokens, output_tokens=estimate.output_tokens
        )
