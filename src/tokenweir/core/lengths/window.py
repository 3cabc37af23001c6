"""What do the last answers of one bucket say about the length of the next?

Model: n observations, each a length and whether the answer ended there or was only seen to reach it
(censored: stopped at its maximum, cancelled, failed); r(x) = observations not shorter than x.
Rule: Kaplan-Meier, S(x) = product over ends t <= x of (1 - 1 / r(t)). F = 1 - S is a step function
over the lengths at which answers ended. What it leaves above the last of them is unresolved: those
answers are longer than all that ended, and nothing says by how much.
Properties: unbiased where censoring does not depend on the length to come; without censoring F is
the plain empirical distribution.
Trade-off: the table lags up to a sixteenth of the window behind, which makes its O(n) rebuild cost
about a microsecond per observation.
Source: Kaplan and Meier 1958; at ties ends come before censored ones, as is usual.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque

import numpy as np

from tokenweir.core.units import Nanos

__all__ = ["LengthWindow"]

# An observation is one sortable int: length, then two flags. Ends sort before censored ones.
_CENSORED = 1
_EARLY = 2
_SHIFT = 2
# Answers that were cut short are remembered beside the completions, up to as many again: a storm of
# cancels must not wash out what is known, yet the window has to be bounded.
_OBSERVATIONS_PER_COMPLETION = 2
_LAG_DIVISOR = 16


class LengthWindow:
    """The last lengths of one bucket, and their distribution."""

    __slots__ = (
        "_age_ns",
        "_cdf",
        "_changes",
        "_completions_max",
        "_ends",
        "_keys",
        "_moments",
        "_sorted",
        "_times",
        "completions",
        "largest_tokens",
        "level",
        "observed",
    )

    def __init__(self, *, completions_max: int, age_ns: Nanos, level: float) -> None:
        """Start empty.

        Args:
            completions_max: Completions kept; the oldest goes, with all that is older.
            age_ns: Nothing older is kept.
            level: Where the bucket's conformal level starts; moved by the predictor.
        """
        self._completions_max = completions_max
        self._age_ns = age_ns
        self.level = level
        # All that ever came, which is the clock of its level; and what is kept and had its end.
        self.observed = 0
        self.completions = 0
        # In order of arrival, and sorted by length.
        self._times: deque[Nanos] = deque()
        self._keys: deque[int] = deque()
        self._sorted = array("q")
        # The table: lengths at which answers ended, ascending, F at each, and sums of length x mass
        # up to each (made when a mean is asked for).
        self._ends = array("q")
        self._cdf = array("d")
        self._moments: array[float] | None = None
        # Longest seen by the table, ended or not.
        self.largest_tokens = 0
        self._changes = 0

    def add(self, output_tokens: int, *, is_censored: bool, is_early: bool, now_ns: Nanos) -> None:
        """Remember one length of at least 1; ``is_early`` marks what was cut short of its max."""
        key = output_tokens << _SHIFT
        if is_censored:
            key |= _CENSORED
            if is_early:
                key |= _EARLY
        self.observed += 1
        self._times.append(now_ns)
        self._keys.append(key)
        insort(self._sorted, key)
        if not key & _EARLY:
            self.completions += 1
        self._changes += 1
        while (
            self.completions > self._completions_max
            or len(self._keys) > _OBSERVATIONS_PER_COMPLETION * self._completions_max
        ):
            self._drop_oldest()
        if self._times[0] < now_ns - self._age_ns:
            self._forget(now_ns)

    def refresh(self, *, now_ns: Nanos) -> None:
        """Drop what is too old, and bring the table up to date if it lags too far behind."""
        times = self._times
        if times and times[0] < now_ns - self._age_ns:
            self._forget(now_ns)
        if self._changes * _LAG_DIVISOR > len(times):
            self._rebuild()

    def steps(self) -> tuple[array[int], array[float]]:
        """Return the lengths at which answers ended, ascending, and F at each; read only."""
        return self._ends, self._cdf

    def survival(self, output_tokens: int) -> float:
        """Return S, the share of answers longer than this."""
        index = bisect_right(self._ends, output_tokens)
        return 1.0 - self._cdf[index - 1] if index else 1.0

    def bounds(self, output_tokens: int) -> tuple[float, float]:
        """Return F just below a length and at it; 1 at what is longer than all seen."""
        ends = self._ends
        below = bisect_left(ends, output_tokens)
        before = self._cdf[below - 1] if below else 0.0
        if output_tokens > self.largest_tokens:
            return before, 1.0
        upto = bisect_right(ends, output_tokens, below)
        return before, self._cdf[upto - 1] if upto else 0.0

    def inverse(self, probability: float, *, generated: int) -> int | None:
        """Return the least length above ``generated`` at which F reaches a probability.

        Returns:
            Tokens, or None where that is in the unresolved part.
        """
        ends = self._ends
        index = bisect_left(self._cdf, probability, bisect_right(ends, generated))
        return ends[index] if index < len(ends) else None

    def capped_moment(
        self, *, generated: int, output_tokens_max: int, unresolved_tokens: int
    ) -> float:
        """Return the sum of min(length, maximum) x mass over lengths above ``generated``."""
        ends, cdf = self._ends, self._cdf
        moments = self._moments
        if moments is None:
            moments = self._moments = array(
                "d", np.cumsum(np.diff(np.array(cdf), prepend=0.0) * np.array(ends)).tobytes()
            )
        low, high = bisect_right(ends, generated), bisect_right(ends, output_tokens_max)
        moment = (moments[high - 1] if high else 0.0) - (moments[low - 1] if low else 0.0)
        resolved = cdf[-1] if cdf else 0.0
        moment += (resolved - (cdf[high - 1] if high else 0.0)) * output_tokens_max
        return moment + (1.0 - resolved) * unresolved_tokens

    def _forget(self, now_ns: Nanos) -> None:
        times = self._times
        horizon_ns = now_ns - self._age_ns
        while times and times[0] < horizon_ns:
            self._drop_oldest()
            self._changes += 1

    def _drop_oldest(self) -> None:
        self._times.popleft()
        key = self._keys.popleft()
        del self._sorted[bisect_left(self._sorted, key)]
        if not key & _EARLY:
            self.completions -= 1

    def _rebuild(self) -> None:
        # A copy: an array with a live view cannot be resized.
        keys = np.array(self._sorted, dtype=np.int64)
        at_risk = np.arange(len(keys), 0, -1, dtype=np.float64)
        is_end = keys & _CENSORED == 0
        survival = np.cumprod(np.where(is_end, 1.0 - 1.0 / at_risk, 1.0))
        self._ends = array("q", (keys[is_end] >> _SHIFT).tobytes())
        self._cdf = array("d", (1.0 - survival[is_end]).tobytes())
        self._moments = None
        self.largest_tokens = int(keys[-1]) >> _SHIFT if len(keys) else 0
        self._changes = 0

    def __repr__(self) -> str:
        """Show the state in one line."""
        return (
            f"LengthWindow({self.completions} completions of {len(self._keys)} observations, "
            f"largest {self.largest_tokens}, level {self.level:.3f})"
        )
