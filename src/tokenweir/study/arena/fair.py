"""How evenly were tenants served while they had something waiting?

Model: W_i(t) = service of tenant i up to t, in units: a prompt token counts 1, when its request
begins to answer; an output token counts 2, when it is produced, at an even pace from first token to
end. A tenant is backlogged while a request of it waits for its first token.
Rule (share): in a window of 60 s around every multiple of 30 s, the units served are shared out by
max-min among the tenants: who was not backlogged all the time asked for what it got, who was asks
for any amount. Jain's index of (service / share) over the backlogged says how even they were: 1 is
even, 1/n is one of n.
Rule (gap): over a span in which two tenants are backlogged, the largest change of W_i - W_j. The
reference's bound of it is 2 U, with U = 2 x the tokens that the batch can hold.
Source: Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, sections 3 and 5; Jain,
Chiu and Hawe, A quantitative measure of fairness, 1984.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenweir.study.arena.served import Floats, Served

__all__ = ["Course", "course_of", "jain", "jain_by_window", "max_min", "worst_gap_units"]

PROMPT_UNITS, OUTPUT_UNITS = 1.0, 2.0
_STEP_S = 1.0
_EVERY_S = 30.0
_HALF_S = 30.0


@dataclass(frozen=True, slots=True)
class Course:
    """Service and backlog over time.

    Attributes:
        times_s: Grid of one second.
        service: Units up to each time, shape (tenants, times).
        is_backlogged: Whether a tenant was all the second from each time on, same shape.
        tenants: Their names, in the order of the rows.
    """

    times_s: Floats
    service: Floats
    is_backlogged: NDArray[np.bool_]
    tenants: tuple[str, ...]


def course_of(served: Served) -> Course:
    """Return the course of a run. Cost O(requests x seconds)."""
    tenants = tuple(sorted(set(served.tenants)))
    rows = {tenant: number for number, tenant in enumerate(tenants)}
    times_s = np.arange(0.0, served.end_s.max() + 2 * _STEP_S, _STEP_S)
    service = np.zeros((len(tenants), len(times_s)))
    waiting: list[list[tuple[float, float]]] = [[] for _ in tenants]
    for number, tenant in enumerate(served.tenants):
        row, first_s = rows[tenant], served.first_s[number]
        span_s = max(served.end_s[number] - first_s, 1e-9)
        produced = np.clip((times_s - first_s) / span_s, 0.0, 1.0) * served.outputs[number]
        begun = times_s >= first_s
        service[row] += PROMPT_UNITS * served.prompts[number] * begun + OUTPUT_UNITS * produced
        waiting[row].append((float(served.arrive_s[number]), float(first_s)))
    backlogged = np.array([_covered(spans, times_s) for spans in waiting], dtype=bool)
    return Course(times_s, service, backlogged, tenants)


def _covered(spans: Sequence[tuple[float, float]], times_s: Floats) -> NDArray[np.bool_]:
    """Return of each second whether the spans together cover it."""
    covered = np.zeros(len(times_s), dtype=bool)
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    for begin, end in merged:
        covered |= (times_s >= begin) & (times_s + _STEP_S <= end)
    return covered


def max_min(total: float, demands: Sequence[float]) -> list[float]:
    """Share a total out: who asks for less than an equal part gets that, the others share the rest.

    Args:
        total: 0 or more.
        demands: Of each, 0 or more; infinite for who takes any amount.
    """
    shares = [0.0] * len(demands)
    left, order = total, sorted(range(len(demands)), key=lambda number: demands[number])
    for place, number in enumerate(order):
        shares[number] = min(demands[number], left / (len(order) - place))
        left -= shares[number]
    return shares


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of values, 1 where all are the same."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def jain_by_window(course: Course) -> list[tuple[float, float, int]]:
    """Return (middle in s, index, backlogged tenants) of each window with two of them or more."""
    rows = []
    half, end = int(_HALF_S / _STEP_S), len(course.times_s) - 1
    for middle in range(half, end - half + 1, int(_EVERY_S / _STEP_S)):
        got = course.service[:, middle + half] - course.service[:, middle - half]
        backlogged = course.is_backlogged[:, middle - half : middle + half].all(axis=1)
        if backlogged.sum() < 2:
            continue
        demands = np.where(backlogged, np.inf, got)
        shares = np.array(max_min(float(got.sum()), demands.tolist()))
        index = jain((got[backlogged] / shares[backlogged]).tolist())
        rows.append((float(course.times_s[middle]), index, int(backlogged.sum())))
    return rows


def worst_gap_units(course: Course) -> float:
    """Return the largest change of the difference of two over a span in which both wait."""
    worst = 0.0
    for first in range(len(course.tenants)):
        for second in range(first + 1, len(course.tenants)):
            both = course.is_backlogged[first] & course.is_backlogged[second]
            if both.any():
                apart = course.service[first] - course.service[second]
                worst = max(worst, _largest_change(apart, both))
    return worst


def _largest_change(values: Floats, holds: NDArray[np.bool_]) -> float:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], holds.astype(np.int8), [0]])))
    worst = 0.0
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        # A second that holds reaches up to the next time.
        span = values[begin : end + 1]
        worst = max(worst, float(span.max() - span.min()))
    return worst
