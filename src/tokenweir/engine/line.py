"""Who is next to enter the batch?

Model: a line of waiting sequences, each with the KV tokens it needs to enter.
Properties: order of arrival, but for preempted sequences, which go back to the front; taking out
and finding the first that fits cost no walk in Python, since an overloaded engine's line is long.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenweir.engine.sequence import Sequence

__all__ = ["WaitingLine"]

_NEVER_FITS = np.iinfo(np.int64).max
_SLACK = 256


class WaitingLine:
    """Slots in order; one that was left stays empty until the next compaction."""

    def __init__(self) -> None:
        """Start empty."""
        self.tokens = 0
        self.count = 0
        self._slots: list[Sequence | None] = []
        self._needs: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._begin = 0
        self._end = 0
        self._place: dict[str, int] = {}
        # Up to this many tokens nobody fits: learned from a search that found nobody.
        self._barren_tokens = -1
        self._compact()

    def push_back(self, sequence: Sequence) -> None:
        """Let a sequence wait behind all others."""
        if self._end == len(self._slots):
            self._compact()
        self._put(sequence, self._end)
        self._end += 1

    def push_front(self, sequence: Sequence) -> None:
        """Let a sequence wait before all others."""
        if self._begin == 0:
            self._compact()
        self._begin -= 1
        self._put(sequence, self._begin)

    def remove(self, sequence: Sequence) -> None:
        """Take a waiting sequence out, wherever it stands."""
        place = self._place.pop(sequence.sequence_id)
        self._slots[place] = None
        self._needs[place] = _NEVER_FITS
        self.count -= 1
        self.tokens -= sequence.prefill_tokens
        while self._begin < self._end and self._slots[self._begin] is None:
            self._begin += 1

    def head(self) -> Sequence | None:
        """Return the first sequence, or None."""
        return self._slots[self._begin] if self.count else None

    def first_fitting(self, room_tokens: int) -> Sequence | None:
        """Return the first sequence that needs at most this much, or None."""
        if room_tokens <= self._barren_tokens or not self.count:
            return None
        fits = self._needs[self._begin : self._end] <= room_tokens
        place = int(fits.argmax())
        if not fits[place]:
            self._barren_tokens = room_tokens
            return None
        return self._slots[self._begin + place]

    def _put(self, sequence: Sequence, place: int) -> None:
        need = sequence.prefill_tokens
        self._slots[place] = sequence
        self._needs[place] = need
        self._place[sequence.sequence_id] = place
        self.count += 1
        self.tokens += need
        if need <= self._barren_tokens:
            self._barren_tokens = need - 1

    def _compact(self) -> None:
        """Close the gaps, and make room on both sides in proportion to what waits."""
        waiting = [s for s in self._slots[self._begin : self._end] if s is not None]
        slack = _SLACK + len(waiting)
        gap: list[Sequence | None] = [None] * slack
        self._slots = [*gap, *waiting, *gap]
        self._needs = np.full(len(self._slots), _NEVER_FITS, dtype=np.int64)
        self._begin = slack
        self._end = slack + len(waiting)
        self._needs[self._begin : self._end] = [s.prefill_tokens for s in waiting]
        self._place = {s.sequence_id: slack + i for i, s in enumerate(waiting)}
