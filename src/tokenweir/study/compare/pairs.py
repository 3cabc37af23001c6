"""Is the difference between two runs on the same requests more than chance?

Model: both policies see the same requests, declared maxima and clients (common random numbers), so
that what they share cancels in the difference. A pair is one piece of work under both: one seed
where seeds draw requests of their own; else one of ``BATCHES`` stretches of consecutive requests of
the recorded trace, averaged over seeds, since seeds of a recorded trace are no new requests.
Rule: mean of the paired differences ± its 95 % interval (see ``statistics``). A difference is clear
where the interval does not hold 0.
Trade-off: stretches that follow each other are not quite independent, which makes the interval of a
recorded trace somewhat too narrow; few long stretches keep that small.
Source: method of batch means, e.g. Law, Simulation Modeling and Analysis, on steady-state output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tokenweir.study.compare.columns import FIGURES, Columns
from tokenweir.study.statistics import mean_interval

__all__ = ["BATCHES", "paired_rows", "requests_apart"]

BATCHES = 20


def paired_rows(
    ours: Sequence[Columns], others: Sequence[Columns], *, batches: int
) -> list[dict[str, Any]]:
    """Return a row per figure.

    Args:
        ours: Runs of the first policy, one per seed.
        others: Runs of the second one, on the same requests.
        batches: Stretches of each run that make pairs, or 1 for runs as pairs.

    Returns:
        ``first`` and ``second`` over all requests, their ``difference``, half the width of its 95 %
        interval ``ci95``, how many ``pairs`` it is from, and whether it ``is_clear``. None where a
        run has nothing to measure.
    """
    return [_row(name, ours, others=others, batches=batches) for name in FIGURES]


def _row(
    name: str, ours: Sequence[Columns], *, others: Sequence[Columns], batches: int
) -> dict[str, Any]:
    first, second = (_mean(name, runs) for runs in (ours, others))
    differences = _differences(name, ours, others=others, batches=batches)
    interval = mean_interval(differences) if differences else None
    half = None if interval is None else interval.half
    difference = None if first is None or second is None else first - second
    return {
        "figure": name,
        "first": _rounded(first),
        "second": _rounded(second),
        "difference": _rounded(difference),
        "ci95": _rounded(half),
        "pairs": len(differences),
        "is_clear": half is not None and difference is not None and abs(difference) > half,
    }


def _mean(name: str, runs: Sequence[Columns]) -> float | None:
    values = [value for run in runs if (value := FIGURES[name](run)) is not None]
    return sum(values) / len(values) if len(values) == len(runs) else None


def _differences(
    name: str, ours: Sequence[Columns], *, others: Sequence[Columns], batches: int
) -> list[float]:
    figure = FIGURES[name]
    if batches == 1:
        pairs = [(figure(a), figure(b)) for a, b in zip(ours, others, strict=True)]
        return [a - b for a, b in pairs if a is not None and b is not None]
    count = len(ours[0].tokens)
    edges = [count * i // batches for i in range(batches + 1)]
    differences = []
    for first, last in pairwise(edges):
        parts = [
            (figure(a.part(first, last)), figure(b.part(first, last)))
            for a, b in zip(ours, others, strict=True)
        ]
        known = [a - b for a, b in parts if a is not None and b is not None]
        if known:
            differences.append(sum(known) / len(known))
    return differences


def requests_apart(ours: Sequence[Columns], others: Sequence[Columns]) -> dict[str, float]:
    """Return how many requests a run were good under one policy only, and under both."""
    runs = max(1, len(ours))
    counts = {"both": 0, "first_only": 0, "second_only": 0, "neither": 0}
    for a, b in zip(ours, others, strict=True):
        counts["both"] += int((a.is_good & b.is_good).sum())
        counts["first_only"] += int((a.is_good & ~b.is_good).sum())
        counts["second_only"] += int((~a.is_good & b.is_good).sum())
        counts["neither"] += int((~a.is_good & ~b.is_good).sum())
    return {name: round(count / runs, 3) for name, count in counts.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
