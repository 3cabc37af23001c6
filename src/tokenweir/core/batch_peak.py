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

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.units import ReservationId

__all__ = ["BatchPeak"]

# A request is one sortable int, held - (remaining << 32): an array of them sorts by remaining,
# largest first, four times as fast as the places of one array sort by another. Among equals the
# order does not matter, since the last of them has the peak.
_SHIFT = 32
_HELD = (1 << _SHIFT) - 1
# More than any pool holds; who asks for more than that asks for too much all the same.
_TOKENS_MAX = 1 << 30
_RANKS_START = 64


class BatchPeak:
    """Held and remaining tokens of the requests on one replica, in slots without gaps."""

    def __init__(self) -> None:
        """Start empty."""
        self._slots: dict[ReservationId, int] = {}
        self._ids: list[ReservationId] = []
        self._rows = array("q")
        self._ranks: NDArray[np.int64] = np.arange(1, _RANKS_START + 1, dtype=np.int64)
        self._peak_tokens: int | None = 0
        # The last candidate and its peak: the head of a queue is asked again until something moves.
        self._asked: int | None = None
        self._asked_peak_tokens = 0

    def __len__(self) -> int:
        """Count the requests."""
        return len(self._ids)

    @property
    def held_tokens(self) -> int:
        """Add up what all hold now. Cost O(n)."""
        return sum(row & _HELD for row in self._rows)

    @property
    def remaining_tokens(self) -> int:
        """Add up what all are taken to produce yet. Cost O(n)."""
        return sum(-(row >> _SHIFT) for row in self._rows)

    def copy(self) -> BatchPeak:
        """Return one that can be changed without changing this. Cost O(n)."""
        other = BatchPeak()
        other._slots, other._ids = dict(self._slots), list(self._ids)
        other._rows, other._ranks = self._rows[:], self._ranks
        other._peak_tokens = self._peak_tokens
        return other

    def add(self, reservation_id: ReservationId, *, held_tokens: int, remaining: int) -> None:
        """Let a request in that holds so much and will produce so much more."""
        self._slots[reservation_id] = len(self._ids)
        self._ids.append(reservation_id)
        self._rows.append(_row(held_tokens, remaining))
        self._peak_tokens = self._asked = None

    def remove(self, reservation_id: ReservationId) -> None:
        """Let a request go; one that is not here is no mistake."""
        slot = self._slots.pop(reservation_id, None)
        if slot is None:
            return
        last, row = self._ids.pop(), self._rows.pop()
        if last != reservation_id:
            self._ids[slot] = last
            self._slots[last] = slot
            self._rows[slot] = row
        self._peak_tokens = self._asked = None

    def produce(self, reservation_id: ReservationId, tokens: int) -> bool:
        """Move a request on; returns whether it has come to the end that was predicted."""
        slot = self._slots.get(reservation_id)
        if slot is None:
            return False
        row = self._rows[slot]
        remaining = -(row >> _SHIFT)
        produced = tokens if tokens < remaining else remaining
        self._rows[slot] = row + tokens + (produced << _SHIFT)
        self._peak_tokens = self._asked = None
        return produced == remaining

    def lengthen(self, reservation_id: ReservationId, remaining: int) -> None:
        """Replace what a request is taken to produce yet."""
        slot = self._slots.get(reservation_id)
        if slot is not None:
            self._rows[slot] = _row(self._rows[slot] & _HELD, remaining)
            self._peak_tokens = self._asked = None

    def peak_tokens(self) -> int:
        """Return the peak of what is here. Cost O(n log n) after a change, then O(1)."""
        if self._peak_tokens is None:
            self._peak_tokens = self._peak()
        return self._peak_tokens

    def peak_tokens_with(self, held_tokens: int, remaining: int) -> int:
        """Return the peak if a candidate entered now. Cost as ``peak_tokens``, per candidate."""
        row = _row(held_tokens, remaining)
        if self._asked != row:
            self._rows.append(row)
            self._asked_peak_tokens = self._peak()
            self._rows.pop()
            self._asked = row
        return self._asked_peak_tokens

    def ends(self) -> list[int]:
        """Return after how many steps somebody ends, in order. Cost O(n log n)."""
        return sorted({-(row >> _SHIFT) for row in self._rows})

    def peak_after(self, steps: int, entering: Sequence[tuple[int, int]]) -> int:
        """Return the peak from a later moment on, if others enter then. Cost O(n log n).

        Args:
            steps: Until then; who has ended by then holds nothing.
            entering: Held and remaining tokens of those others.
        """
        grown = steps + (steps << _SHIFT)
        # Below this sort those that have more than so many steps left.
        rows = [row + grown for row in self._rows if row < -(steps << _SHIFT)]
        rows += [_row(held, remaining) for held, remaining in entering]
        return self._peak_of(np.array(rows, dtype=np.int64)) if rows else 0

    def _peak(self) -> int:
        # A copy: an array with a live view cannot be resized.
        return self._peak_of(np.array(self._rows)) if self._rows else 0

    def _peak_of(self, rows: NDArray[np.int64]) -> int:
        count = len(rows)
        if count > len(self._ranks):
            self._ranks = np.arange(1, 2 * count + 1, dtype=np.int64)
        rows.sort()
        terms = (rows & _HELD).cumsum()
        rows >>= _SHIFT
        rows *= self._ranks[:count]
        terms -= rows
        return int(terms.max())


def _row(held_tokens: int, remaining: int) -> int:
    return min(held_tokens, _TOKENS_MAX) - (min(remaining, _TOKENS_MAX) << _SHIFT)
