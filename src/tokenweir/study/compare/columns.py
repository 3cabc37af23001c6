"""What became of each measured request of a run, so that two runs can be paired?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenweir.core.units import NS_PER_S
from tokenweir.sim.attempt import Fate
from tokenweir.sim.results import Slo, is_good
from tokenweir.sim.scenario import Record
from tokenweir.study.window import Window

__all__ = ["FIGURES", "Columns", "columns_of"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """Measured unique requests of one run, by arrival; arrays of shape (n,).

    Attributes:
        is_good: Whether any attempt met the SLO.
        has_entered: Whether any attempt entered the engine.
        ttft_s: From the attempt's arrival, not a number where none was completed.
        tokens: Prompt and output tokens.
    """

    is_good: Bools = field(repr=False)
    has_entered: Bools = field(repr=False)
    ttft_s: Floats = field(repr=False)
    tokens: Floats = field(repr=False)

    def part(self, first: int, last: int) -> Columns:
        """Return the requests from one index up to another."""
        rows = slice(first, last)
        return Columns(
            self.is_good[rows], self.has_entered[rows], self.ttft_s[rows], self.tokens[rows]
        )


def columns_of(record: Record, slo: Slo, *, window: Window) -> Columns:
    """Return what became of a run's measured requests."""
    count, engine = len(window.measured), record.scenario.profile
    good, entered = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    ttft_s = np.full(count, np.nan)
    for attempt in record.attempts:
        if not window.first <= attempt.index < window.last:
            continue
        index = attempt.index - window.first
        good[index] |= is_good(attempt, slo, engine=engine)
        entered[index] |= attempt.is_dispatched
        if attempt.fate is Fate.COMPLETED and attempt.first_ns is not None:
            ttft_s[index] = (attempt.first_ns - attempt.arrive_ns) / NS_PER_S
    tokens = [a.prompt_tokens + a.output_tokens for a in window.measured]
    return Columns(good, entered, ttft_s, np.array(tokens, dtype=np.float64))


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _quantile(columns: Columns, q: float) -> float | None:
    """Return the nearest-rank quantile over completed requests."""
    served = np.sort(columns.ttft_s[~np.isnan(columns.ttft_s)])
    return float(served[min(len(served) - 1, math.floor(q * len(served)))]) if len(served) else None


# Each figure, of the requests of a part.
FIGURES: dict[str, Callable[[Columns], float | None]] = {
    "goodput_requests": lambda c: _share(float(c.is_good.sum()), len(c.tokens)),
    "goodput_tokens": lambda c: _share(float(c.tokens[c.is_good].sum()), float(c.tokens.sum())),
    "attainment": lambda c: _share(float(c.is_good.sum()), float(c.has_entered.sum())),
    "refused_fraction": lambda c: _share(float((~c.has_entered).sum()), len(c.tokens)),
    "ttft_p50_s": lambda c: _quantile(c, 0.5),
    "ttft_p99_s": lambda c: _quantile(c, 0.99),
}
