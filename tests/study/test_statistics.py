"""Means and their intervals."""

from __future__ import annotations

import random

import pytest

from tokenweir.study.statistics import Interval, intervals_of, mean_interval, student_quantile


def test_mean_interval_when_one_value_then_there_is_no_interval() -> None:
    """One seed says nothing of its own spread."""
    assert mean_interval([0.5]) == Interval(0.5, None)


def test_mean_interval_when_values_are_known_then_it_is_the_textbook_one() -> None:
    """1, 2, 3: mean 2, deviation 1, t of 2 degrees 4.3027, half width 4.3027 / sqrt 3."""
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2
    assert interval.half == pytest.approx(4.3027 / 3**0.5)


def test_mean_interval_when_drawn_often_then_19_of_20_hold_the_mean() -> None:
    """The interval covers what it says it covers, on normal values."""
    rng = random.Random(7)
    inside = 0
    for _ in range(4_000):
        interval = mean_interval([rng.gauss(3.0, 2.0) for _ in range(5)])
        assert interval.half is not None
        inside += abs(interval.mean - 3.0) <= interval.half
    assert inside / 4_000 == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (30, 2.0423), (31, 2.0395), (120, 1.9799)]
)
def test_student_quantile_when_freedom_grows_then_it_follows_the_table(
    freedom: int, expected: float
) -> None:
    """Table and expansion meet."""
    assert student_quantile(freedom) == pytest.approx(expected, abs=5e-4)


def test_intervals_of_when_a_run_has_no_figure_then_there_is_none() -> None:
    """A percentile of nobody is not averaged over the other runs."""
    intervals = intervals_of([{"a": 1.0, "b": None}, {"a": 3.0, "b": 2.0}])
    assert intervals["b"] is None
    assert intervals["a"] is not None
    assert intervals["a"].mean == 2
