"""Into which buckets of time does a window fall?

Rule: bucket t is [t d, (t + 1) d). A window falls into every bucket that it
touches, so it is rounded outward to bucket edges and the bound stays valid for any width d; a
window that ends on an edge does not touch the bucket that begins there.
Trade-off: wide buckets are fast and loose. The program has about one row for each pair of a bucket
and a deadline that is open in it, which ``width_for`` keeps below a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenweir.core.units import NS_PER_S, Nanos
from tokenweir.study.bound.requests import Ints
from tokenweir.study.bound.work import Work

__all__ = ["Buckets", "width_for"]

# Widths that are tried, in s, smallest first.
_WIDTHS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 3_600)
_PAIRS_MAX = 40_000


@dataclass(frozen=True, slots=True)
class Buckets:
    """A division of time from 0 on into parts of ``width_ns``, above 0."""

    width_ns: Nanos

    def first(self, release_ns: Ints) -> Ints:
        """Return the first bucket of windows that open then."""
        return release_ns // self.width_ns

    def last(self, deadline_ns: Ints, *, first: Ints) -> Ints:
        """Return the last bucket of windows that close then, not before their first."""
        return np.maximum(-(-deadline_ns // self.width_ns) - 1, first)


def width_for(work: Work) -> Nanos:
    """Return the smallest width, from 1 s up, that keeps the program's size within its limit."""
    for width_s in _WIDTHS_S:
        if _pairs(work, Buckets(width_s * NS_PER_S)) <= _PAIRS_MAX:
            break
    return width_s * NS_PER_S


def _pairs(work: Work, buckets: Buckets) -> int:
    """Count pairs of a deadline and a bucket in which it is open."""
    pairs = 0
    for activity in work.activities.values():
        first = buckets.first(activity.release_ns)
        last = buckets.last(activity.deadline_ns, first=first)
        opens = np.full(int(last.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(opens, last, first)
        used = np.flatnonzero(opens <= last.max())
        pairs += int((used - opens[used] + 1).sum())
    return pairs
