"""How full will the KV pool get if nobody else enters?

Model: request i holds a_i tokens now and will produce b_i more; all run together, one token a step,
and let go of everything at their end.
Rule: occupancy is highest just before somebody ends. With the requests sorted by b, largest first,
the peak is max over i of (b_i i + sum of a_j for j <= i): what is held when exactly the i longest
remain.
Properties: while all produce tokens at the same pace the terms do not change, since a_i grows as
b_i falls; so progress that is a little old does no harm. Exact against stepping, where lengths are.
Trade-off: a long prefill delays its request's growth, which this does not see; it errs high.
Source: the future-memory formula of Gong et al., ASPLOS 2025.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.units import ReservationId

__all__ = ["BatchPeak"]

_SLOTS_START = 64


class BatchPeak:
    """Held and remaining tokens of the requests on one replica, in slots without gaps."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[ReservationId, int] = {}
        self._ids: list[ReservationId] = []
        self._held: NDArray[np.int64] = np.zeros(_SLOTS_START, dtype=np.int64)
        self._remaining: NDArray[np.int64] = np.zeros(_SLOTS_START, dtype=np.int64)
        self._ranks: NDArray[np.int64] = np.arange(1, _SLOTS_START + 1, dtype=np.int64)
        self._peak_tokens: int | None = 0
        # The last candidate and its peak: the head of a queue is asked again until something moves.
        self._asked: tuple[int, int] | None = None
        self._asked_peak_tokens = 0

    def __len__(self) -> int:
        """Count the requests."""
        return len(self._ids)

    @property
    def held_tokens(self) -> int:
        """Add up what all hold now. Cost O(n)."""
        return int(self._held[: len(self._ids)].sum())

    def copy(self) -> BatchPeak:
        """Return one that can be changed without changing this. Cost O(n)."""
        other = BatchPeak()
        other._slots, other._ids = dict(self._slots), list(self._ids)
        other._held, other._remaining = self._held.copy(), self._remaining.copy()
        other._ranks, other._peak_tokens = self._ranks, self._peak_tokens
        return other

    def add(self, reservation_id: ReservationId, *, held_tokens: int, remaining: int) -> None:
        """Let a request in that holds so much and will produce so much more."""
        slot = len(self._ids)
        # One slot is kept free for a candidate.
        if slot + 1 >= len(self._held):
            self._grow_arrays()
        self._slots[reservation_id] = slot
        self._ids.append(reservation_id)
        self._held[slot] = held_tokens
        self._remaining[slot] = remaining
        self._peak_tokens = self._asked = None

    def remove(self, reservation_id: ReservationId) -> None:
        """Let a request go; one that is not here is no mistake."""
        slot = self._slots.pop(reservation_id, None)
        if slot is None:
            return
        last = self._ids.pop()
        if last != reservation_id:
            self._ids[slot] = last
            self._slots[last] = slot
            self._held[slot] = self._held[len(self._ids)]
            self._remaining[slot] = self._remaining[len(self._ids)]
        self._peak_tokens = self._asked = None

    def produce(self, reservation_id: ReservationId, tokens: int) -> bool:
        """Move a request on; returns whether it has come to the end that was predicted."""
        slot = self._slots.get(reservation_id)
        if slot is None:
            return False
        self._held[slot] += tokens
        left = int(self._remaining[slot]) - tokens
        self._remaining[slot] = left if left > 0 else 0
        self._peak_tokens = self._asked = None
        return left <= 0

    def lengthen(self, reservation_id: ReservationId, remaining: int) -> None:
        """Replace what a request is taken to produce yet."""
        slot = self._slots.get(reservation_id)
        if slot is not None:
            self._remaining[slot] = remaining
            self._peak_tokens = self._asked = None

    def peak_tokens(self) -> int:
        """Return the peak of what is here. Cost O(n log n) after a change, then O(1)."""
        if self._peak_tokens is None:
            self._peak_tokens = self._peak_of(len(self._ids))
        return self._peak_tokens

    def peak_tokens_with(self, held_tokens: int, remaining: int) -> int:
        """Return the peak if a candidate entered now. Cost as ``peak_tokens``, per candidate."""
        if self._asked != (held_tokens, remaining):
            count = len(self._ids)
            self._held[count] = held_tokens
            self._remaining[count] = remaining
            self._asked_peak_tokens = self._peak_of(count + 1)
            self._asked = (held_tokens, remaining)
        return self._asked_peak_tokens

    def _peak_of(self, count: int) -> int:
        if count == 0:
            return 0
        remaining = self._remaining[:count]
        # Methods, not functions of numpy: those spend as long again on finding the method.
        order = (-remaining).argsort(kind="stable")
        terms = remaining.take(order)
        terms *= self._ranks[:count]
        terms += self._held.take(order).cumsum()
        return int(terms.max())

    def _grow_arrays(self) -> None:
        size = 2 * len(self._held)
        self._held = np.resize(self._held, size)
        self._remaining = np.resize(self._remaining, size)
        self._ranks = np.arange(1, size + 1, dtype=np.int64)
