"""Who waits, in what order, and for how long at most?

Model: a queue of entries in order of arrival; D = sum of their estimates (token debt).
Properties: INV-QUEUE-1 (items, debt and wait never exceed their bounds), INV-QUEUE-2 (D, and the
prompt tokens to be read, are sums over entries). The head is never skipped, so a large request
cannot be starved by small ones.
Trade-off: strict order lets a large head hold back small ones that would fit.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tokenweir.core.cost import Estimate
from tokenweir.core.errors import ConfigError, ContractError, InvariantError
from tokenweir.core.profile import attention_pairs
from tokenweir.core.request import Request
from tokenweir.core.units import NS_PER_S, Nanos, TicketId

__all__ = ["FifoQueue", "QueueEntry", "QueueLimits"]


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much may wait.

    Attributes:
        items_max: Entries, 0 or more; 0 means that nothing waits and what does not fit is refused.
        debt_tokens_max: Sum of estimates, 0 or more, or None for no bound beside the others.
        wait_ns_max: Longest wait, above 0. 5 s is what an interactive user bears at most.
        first_token_slo_ns: Where known, nothing is queued whose predicted wait is over
            ``slo_fraction`` of it: what is doomed is refused at once.
        first_token_unloaded_ratio: Where the engine's profile is known, a request whose first token
            takes long on an idle engine already may take so many times that; 0 for no such grace.
        slo_fraction: See above, above 0 to 1; the other half is for the prefill inside the engine,
            which a loaded engine needs.
    """

    items_max: int = 1_000
    debt_tokens_max: int | None = None
    wait_ns_max: Nanos = 5 * NS_PER_S
    first_token_slo_ns: Nanos | None = None
    first_token_unloaded_ratio: float = 0.0
    slo_fraction: float = 0.5

    def __post_init__(self) -> None:
        """Check ranges."""
        if self.items_max < 0:
            raise ConfigError(f"items_max {self.items_max} is not allowed, allowed: 0 or more")
        if self.debt_tokens_max is not None and self.debt_tokens_max < 0:
            raise ConfigError(
                f"debt_tokens_max {self.debt_tokens_max} is not allowed, allowed: 0 or more"
            )
        if not self.first_token_unloaded_ratio >= 0:
            raise ConfigError(
                f"first_token_unloaded_ratio {self.first_token_unloaded_ratio} is not allowed, "
                "allowed: 0 or more"
            )
        if self.wait_ns_max <= 0:
            raise ConfigError(f"wait_ns_max {self.wait_ns_max} is not allowed, allowed: above 0")
        if self.first_token_slo_ns is not None and self.first_token_slo_ns <= 0:
            raise ConfigError(
                f"first_token_slo_ns {self.first_token_slo_ns} is not allowed, "
                "allowed: above 0, or none"
            )
        if not 0 < self.slo_fraction <= 1:
            raise ConfigError(
                f"slo_fraction {self.slo_fraction} is not allowed, allowed: above 0 up to 1"
            )

    def wait_ns_bound(self) -> Nanos:
        """Return the longest wait that can still meet the SLO."""
        if self.first_token_slo_ns is None:
            return self.wait_ns_max
        return min(self.wait_ns_max, int(self.first_token_slo_ns * self.slo_fraction))


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One waiting request."""

    ticket_id: TicketId
    request: Request
    estimate: Estimate
    enqueued_ns: Nanos
    expires_ns: Nanos


class FifoQueue:
    """A bounded first-in-first-out queue of one pool."""

    def __init__(self, limits: QueueLimits) -> None:
        """Start empty."""
        self.limits = limits
        self.debt_tokens = 0
        self.prompt_tokens = 0
        self.attention_pairs = 0.0
        # In order of arrival; read by the owner, written here only.
        self.entries: dict[TicketId, QueueEntry] = {}
        # (expires, sequence, ticket); entries that have left stay until they come up.
        self._expiries: list[tuple[Nanos, int, TicketId]] = []
        self._sequence = 0

    def __len__(self) -> int:
        """Count what waits."""
        return len(self.entries)

    def __contains__(self, ticket_id: object) -> bool:
        """Whether the ticket still waits."""
        return ticket_id in self.entries

    def has_room(self, estimate: Estimate) -> bool:
        """Tell whether one more entry keeps items and debt within their bounds."""
        limits = self.limits
        if len(self.entries) >= limits.items_max:
            return False
        debt_max = limits.debt_tokens_max
        return debt_max is None or self.debt_tokens + estimate.tokens <= debt_max

    def push(self, entry: QueueEntry) -> None:
        """Append an entry.

        Raises:
            ContractError: There is no room, or the ticket waits already; nothing is changed.
        """
        if entry.ticket_id in self.entries:
            raise ContractError(f"ticket {entry.ticket_id} waits already")
        if not self.has_room(entry.estimate):
            raise ContractError(f"queue is full at {len(self.entries)} items, ask has_room first")
        self.entries[entry.ticket_id] = entry
        self.debt_tokens += entry.estimate.tokens
        self.prompt_tokens += entry.estimate.prompt_tokens
        self.attention_pairs += attention_pairs(entry.estimate.prompt_tokens)
        self._sequence += 1
        heapq.heappush(self._expiries, (entry.expires_ns, self._sequence, entry.ticket_id))

    def head(self) -> QueueEntry | None:
        """Return the next entry, or None."""
        return next(iter(self.entries.values()), None)

    def remove(self, ticket_id: TicketId) -> QueueEntry | None:
        """Take an entry out, whatever its place; None where it no longer waits."""
        entry = self.entries.pop(ticket_id, None)
        if entry is not None:
            self.debt_tokens -= entry.estimate.tokens
            self.prompt_tokens -= entry.estimate.prompt_tokens
            self.attention_pairs -= attention_pairs(entry.estimate.prompt_tokens)
            self._forget_gone()
        return entry

    def pop_expired(self, *, now_ns: Nanos) -> QueueEntry | None:
        """Take out one entry whose time is over, the longest overdue first."""
        while self._expiries and self._expiries[0][0] <= now_ns:
            _, _, ticket_id = heapq.heappop(self._expiries)
            entry = self.remove(ticket_id)
            if entry is not None:
                return entry
        return None

    def next_expiry_ns(self) -> Nanos | None:
        """Return when the next entry runs out of time, or None."""
        self._forget_gone()
        return self._expiries[0][0] if self._expiries else None

    def check_invariants(self) -> None:
        """Recount. Cost O(n).

        Raises:
            InvariantError: INV-QUEUE-1 or INV-QUEUE-2 does not hold.
        """
        debt = sum(entry.estimate.tokens for entry in self.entries.values())
        if debt != self.debt_tokens:
            raise InvariantError(
                f"queue says debt {self.debt_tokens}, its entries add up to {debt}"
            )
        prompts = sum(entry.estimate.prompt_tokens for entry in self.entries.values())
        if prompts != self.prompt_tokens:
            raise InvariantError(
                f"queue says {self.prompt_tokens} prompt tokens, its entries add up to {prompts}"
            )
        if len(self.entries) > self.limits.items_max:
            raise InvariantError(
                f"queue holds {len(self.entries)} items, its bound is {self.limits.items_max}"
            )
        debt_max = self.limits.debt_tokens_max
        if debt_max is not None and debt > debt_max:
            raise InvariantError(f"queue holds {debt} tokens, its bound is {debt_max}")
        bound_ns = self.limits.wait_ns_max
        for entry in self.entries.values():
            if entry.expires_ns - entry.enqueued_ns > bound_ns:
                raise InvariantError(
                    f"ticket {entry.ticket_id} may wait "
                    f"{entry.expires_ns - entry.enqueued_ns} ns, the bound is {bound_ns} ns"
                )

    def _forget_gone(self) -> None:
        expiries = self._expiries
        while expiries and expiries[0][2] not in self.entries:
            heapq.heappop(expiries)
        # Entries that leave from the middle would pile up behind a long-lived head.
        if len(expiries) > 2 * len(self.entries) + 64:
            self._expiries = [row for row in expiries if row[2] in self.entries]
            heapq.heapify(self._expiries)
