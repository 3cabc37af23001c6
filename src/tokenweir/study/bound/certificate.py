"""How much can nobody exceed, given what a bucket of each resource is worth?

Model: price y(r, t) >= 0 of all that resource r gives in bucket t.
Rule: sum of y(r, t) + sum over requests of max(0, v_i - cost of its work in the cheapest buckets of
its windows).
Validity: take any schedule. Its good requests are worth the sum of their v_i; what they take costs
at most all of y, since nobody takes more than a resource gives, and at least their work in the
cheapest buckets of their windows. So the rule's sum is at least their value, for any prices
whatever. With the prices of an optimal program it is the optimum (duality), so nothing is lost,
and a solver that rounds costs tightness but never validity.
Source: Lagrangian relaxation of the capacity rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenweir.study.bound.program import Pool
from tokenweir.study.bound.requests import Floats, Ints

__all__ = ["certified_bound"]


def certified_bound(
    pools: Sequence[Pool],
    values: Floats,
    *,
    can_be_good: NDArray[np.bool_],
    prices: Mapping[str, Floats],
) -> float:
    """Return a value that no schedule exceeds, in the unit of ``values``.

    Args:
        pools: Work and windows.
        values: Of each request, 0 or more, shape (requests,).
        can_be_good: Requests that could be good alone, shape (requests,).
        prices: Of each resource by bucket, 0 or more, shape (buckets,).
    """
    costs = np.zeros_like(values)
    for pool in pools:
        price = np.sum([charge * prices[name] for name, charge in pool.charges.items()], axis=0)
        cheapest = _least_in(price, first=pool.first, last=pool.last)
        np.add.at(costs, pool.item, pool.amount * cheapest)
    gains = np.maximum(values - costs, 0.0)[can_be_good]
    return float(gains.sum() + sum(float(price.sum()) for price in prices.values()))


def _least_in(price: Floats, *, first: Ints, last: Ints) -> Floats:
    """Return the least of ``price[first : last + 1]`` of each window.

    A window of n buckets is covered by two runs of the largest power of two up to n.
    """
    least = np.empty(len(first))
    powers = np.frexp(last - first + 1)[1] - 1
    runs, run = price, 1
    for power in range(int(powers.max(initial=0)) + 1):
        chosen = powers == power
        least[chosen] = np.minimum(runs[first[chosen]], runs[last[chosen] + 1 - run])
        runs = np.minimum(runs[:-run], runs[run:])
        run *= 2
    return least
