"""How does the time-indexed linear program look as a sparse matrix?

Model: x_i in [0, 1] is the share of request i that is served well; w_i its amount of an activity,
its window the buckets u_i to v_i.
Rule: maximise sum v_i x_i, where every activity finds its amount inside its window and no resource
gives more in a bucket than its rate times the width. Written down naively that is one variable per
request and bucket of its window. Requests with the same last bucket v are alike to a resource once
they have arrived, so work is pooled by it: S(v, t) is what bucket t does of the work due by v, and
Q(v, t) what it leaves of it:

    Q(v, t - 1) + sum of w_i x_i over v_i = v, u_i = t  =  S(v, t) + Q(v, t),   Q(v, v) = 0

Properties: exactly the naive program: a pool served first come, first served splits back into
requests, each inside its window. Activities that are charged alike share their pools. Its size
does not grow with requests but with pairs of a bucket and an open deadline.
Units: S and Q are shares of what the scarcest resource gives in a bucket, so numbers are near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenweir.study.bound.requests import Floats, Ints
from tokenweir.study.bound.windows import Buckets
from tokenweir.study.bound.work import Work

__all__ = ["Pool", "Program", "pools_of", "program_of"]


@dataclass(frozen=True, slots=True)
class Pool:
    """Activities that are charged alike, request by request; arrays of shape (items,).

    Attributes:
        charges: What a unit takes of each resource, 1 of the scarcest.
        item: Index of the request.
        amount: Above 0; the unit is all that the scarcest resource gives in a bucket.
        first: First bucket of the window.
        last: Last bucket of the window.
    """

    charges: dict[str, float]
    item: Ints = field(repr=False)
    amount: Floats = field(repr=False)
    first: Ints = field(repr=False)
    last: Ints = field(repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    """A linear program: bounds on columns and rows, and a matrix stored by columns.

    Attributes:
        columns: How many; the first ones are the shares of the requests.
        column_upper: Upper bounds, shape (columns,); lower bounds are 0.
        row_lower: Shape (rows,).
        row_upper: Shape (rows,).
        starts: Of each column in ``indexes``, shape (columns + 1,).
        indexes: Rows.
        coefficients: Values.
        capacity_rows: First row of each resource; the rows of its buckets follow in order.
        buckets_count: How many.
    """

    columns: int
    column_upper: Floats = field(repr=False)
    row_lower: Floats = field(repr=False)
    row_upper: Floats = field(repr=False)
    starts: Ints = field(repr=False)
    indexes: Ints = field(repr=False)
    coefficients: Floats = field(repr=False)
    capacity_rows: dict[str, int]
    buckets_count: int


def pools_of(work: Work, buckets: Buckets) -> list[Pool]:
    """Return the work of requests that can be good, pooled by what it is charged."""
    by_charges: dict[tuple[tuple[str, float], ...], list[tuple[str, float]]] = {}
    for name in work.activities:
        charges = {
            key: resource.charges[name] / (resource.rate * buckets.width_ns)
            for key, resource in work.resources.items()
            if name in resource.charges
        }
        if charges:
            unit = max(charges.values())
            alike = tuple((key, charge / unit) for key, charge in charges.items())
            by_charges.setdefault(alike, []).append((name, unit))
    return [
        _pool(work, buckets, members=members, charges=dict(charges))
        for charges, members in by_charges.items()
    ]


def _pool(
    work: Work,
    buckets: Buckets,
    *,
    members: Sequence[tuple[str, float]],
    charges: dict[str, float],
) -> Pool:
    columns: list[tuple[Ints, Floats, Ints, Ints]] = []
    for name, unit in members:
        activity = work.activities[name]
        item = np.flatnonzero(work.can_be_good & (activity.amount > 0))
        first = buckets.first(activity.release_ns[item])
        last = buckets.last(activity.deadline_ns[item], first=first)
        columns.append((item, activity.amount[item] * unit, first, last))
    item, amount, first, last = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Pool(charges, item, amount, first, last)


def program_of(pools: Sequence[Pool], *, requests_count: int) -> Program:
    """Write down the program of these pools."""
    buckets_count = 1 + max((int(pool.last.max()) for pool in pools if len(pool.last)), default=0)
    resources = dict.fromkeys(name for pool in pools for name in pool.charges)
    capacity_rows = {name: i * buckets_count for i, name in enumerate(resources)}
    matrix = _Triplets(columns=requests_count, rows=len(resources) * buckets_count)
    capacities = matrix.rows
    for pool in pools:
        if len(pool.item):
            _add_pool(matrix, pool, capacity_rows=capacity_rows)
    starts, indexes, coefficients = matrix.by_columns()
    upper = np.full(matrix.columns, np.inf)
    upper[:requests_count] = 1.0
    is_capacity = np.arange(matrix.rows) < capacities
    return Program(
        columns=matrix.columns,
        column_upper=upper,
        row_lower=np.where(is_capacity, -np.inf, 0.0),
        row_upper=np.where(is_capacity, 1.0, 0.0),
        starts=starts,
        indexes=indexes,
        coefficients=coefficients,
        capacity_rows=capacity_rows,
        buckets_count=buckets_count,
    )


class _Triplets:
    """A sparse matrix that grows by (row, column, value)."""

    def __init__(self, *, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        self._rows: list[Ints] = []
        self._columns: list[Ints] = []
        self._values: list[Floats] = []

    def add(self, rows: Ints, columns: Ints, *, values: Floats | float) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape))

    def by_columns(self) -> tuple[Ints, Ints, Floats]:
        if not self._rows:
            return np.zeros(self.columns + 1, dtype=np.int64), np.empty(0, np.int64), np.empty(0)
        # A request's prefill and decode may be due in the same bucket: equal places add up.
        place = np.concatenate(self._columns) * self.rows + np.concatenate(self._rows)
        places, which = np.unique(place, return_inverse=True)
        values: Floats = np.zeros(len(places))
        np.add.at(values, which, np.concatenate(self._values))
        counts = np.bincount(places // self.rows, minlength=self.columns)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return starts, places % self.rows, values


def _add_pool(matrix: _Triplets, pool: Pool, *, capacity_rows: dict[str, int]) -> None:
    """Add the pool's rows, one per cell (v, t), and its columns S and Q."""
    deadlines, which = np.unique(pool.last, return_inverse=True)
    opens = deadlines.copy()
    np.minimum.at(opens, which, pool.first)
    lengths = deadlines - opens + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    cells = int(offsets[-1])
    cell = np.arange(cells, dtype=np.int64)
    bucket = cell - np.repeat(offsets[:-1] - opens, lengths)
    is_last = np.zeros(cells, dtype=np.bool_)
    is_last[offsets[1:] - 1] = True

    row = matrix.rows + cell
    served = matrix.columns + cell
    left = matrix.columns + cells + np.cumsum(~is_last) - 1
    keeps: NDArray[np.bool_] = ~is_last
    matrix.add(row, served, values=1.0)
    matrix.add(row[keeps], left[keeps], values=1.0)
    matrix.add(row[keeps] + 1, left[keeps], values=-1.0)
    for name, charge in pool.charges.items():
        matrix.add(capacity_rows[name] + bucket, served, values=charge)
    enters = offsets[which] + pool.first - opens[which]
    matrix.add(matrix.rows + enters, pool.item, values=-pool.amount)
    matrix.rows += cells
    matrix.columns += cells + int(keeps.sum())
