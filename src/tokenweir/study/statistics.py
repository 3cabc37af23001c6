"""How sure is a mean over a few seeds?

Model: n values, independent and about normal; m their mean, s their standard deviation.
Rule: m ± t s / sqrt(n), where t is the 97.5 % quantile of Student's distribution with n - 1 degrees
of freedom: 19 of 20 such intervals hold the true mean. One value has no interval.
Trade-off: seeds are the only chance it knows of. On a recorded trace they draw declared maxima and
clients, not other requests, so that the interval says nothing of another day's traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Interval", "intervals_of", "mean_interval", "student_quantile"]

# 97.5 % quantiles for 1 to 30 degrees of freedom; above, the expansion is exact to four digits.
_QUANTILES = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
_NORMAL = 1.959964


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and half the width of its 95 % interval, None where there is but one value."""

    mean: float
    half: float | None

    def __str__(self) -> str:
        """Show both."""
        return f"{self.mean:.4f}" + ("" if self.half is None else f" ± {self.half:.4f}")


def student_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution.

    Args:
        freedom: Degrees of freedom, 1 or more.
    """
    if freedom <= len(_QUANTILES):
        return _QUANTILES[freedom - 1]
    z = _NORMAL
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second


def mean_interval(values: Sequence[float]) -> Interval:
    """Return mean and interval of one value or more."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Interval(mean, student_quantile(count - 1) * deviation / math.sqrt(count))


def intervals_of(runs: Sequence[Mapping[str, float | None]]) -> dict[str, Interval | None]:
    """Return the interval of each figure over runs; None where a run has none of it."""
    result: dict[str, Interval | None] = {}
    for name in runs[0]:
        values = [run[name] for run in runs]
        known = [value for value in values if value is not None]
        result[name] = mean_interval(known) if len(known) == len(values) else None
    return result
