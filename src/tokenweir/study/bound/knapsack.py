"""What can one look at the whole, without windows, already exclude?

Rule: for a resource r and a cut t, what requests must take of r before t (their windows end by t)
fits into the buckets before t. That is a fractional knapsack: fill it by value per need, the last
one in part. The bound is the least over resources and cuts.
Validity: each knapsack is the linear program of level L with all rows but one sum of rows dropped,
so it is never below it. The cut matters: without it, a run's tail, in which long outputs may still
be decoded though nothing arrives any more, would count as capacity for all.
Trade-off: instant, and looser than the program where load is uneven or several resources bind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenweir.study.bound.program import Pool
from tokenweir.study.bound.requests import Floats

__all__ = ["fractional_knapsack", "knapsack_bound"]

# Cuts tried per resource besides the end of arrivals.
_CUTS_MAX = 64


def knapsack_bound(
    pools: Sequence[Pool], values: Floats, *, can_be_good: NDArray[np.bool_]
) -> tuple[float, Floats]:
    """Return the least bound of all knapsacks, and the shares of requests in it.

    Args:
        pools: Work and windows of level L.
        values: Of each request, 0 or more, shape (requests,).
        can_be_good: Requests that could be good alone, shape (requests,).
    """
    worth = np.where(can_be_good, values, 0.0)
    shares = can_be_good.astype(np.float64)
    least = float(worth.sum())
    buckets = 1 + max((int(pool.last.max(initial=0)) for pool in pools), default=0)
    # The end of arrivals is mostly the best cut: work due by then had the least of the tail.
    arrived = 1 + max((int(pool.first.max(initial=0)) for pool in pools), default=0)
    spread = np.linspace(1, buckets, min(buckets, _CUTS_MAX)).astype(np.int64)
    cuts = np.unique(np.append(spread, [arrived - 1, arrived, arrived + 1])).clip(1, buckets)
    for name in dict.fromkeys(name for pool in pools for name in pool.charges):
        charged = [(pool, pool.charges[name]) for pool in pools if name in pool.charges]
        for cut in cuts.tolist():
            needs = np.zeros_like(values)
            for pool, charge in charged:
                due = np.where(pool.last < cut, pool.amount * charge, 0.0)
                needs += np.bincount(pool.item, weights=due, minlength=len(values))
            filled = fractional_knapsack(worth, needs, room=float(cut))
            value = float(worth @ filled)
            if value < least:
                least, shares = value, filled * can_be_good
    return least, shares


def fractional_knapsack(values: Floats, needs: Floats, *, room: float) -> Floats:
    """Return the share of each item that makes the most of a room, 0 to 1, shape (items,).

    Args:
        values: 0 or more, shape (items,).
        needs: 0 or more, in the unit of the room, shape (items,).
        room: 0 or more.
    """
    density = np.divide(values, needs, out=np.full_like(values, np.inf), where=needs > 0)
    order = np.argsort(-density, kind="stable")
    sorted_needs = needs[order]
    before = np.cumsum(sorted_needs) - sorted_needs
    part = np.divide(room - before, sorted_needs, out=np.ones_like(values), where=sorted_needs > 0)
    shares = np.empty_like(values)
    shares[order] = np.clip(part, 0.0, 1.0)
    return shares
