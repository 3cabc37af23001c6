"""The linear program behind every fit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.study.fitting.least_deviation import least_deviation

FEATURES = np.array([[1.0, n, n * n] for n in range(1, 30)])


@given(st.lists(st.floats(0.0, 1e6), min_size=3, max_size=3).filter(lambda c: sum(c) > 1.0))
def test_least_deviation_when_values_are_exact_then_they_are_met(coefficients: list[float]) -> None:
    """What the model made, the model finds, whatever the size of its coefficients."""
    values = FEATURES @ np.array(coefficients)
    found, deviation = least_deviation(FEATURES, values, weights=np.ones(29))
    assert deviation == pytest.approx(0.0, abs=1e-5)
    assert FEATURES @ found == pytest.approx(values, rel=1e-5)


def test_least_deviation_when_a_few_values_are_wrong_then_the_rest_decide() -> None:
    """Three of 29 values are ten times too large, and nothing moves."""
    values = FEATURES @ np.array([5.0, 2.0, 1.0])
    values[[3, 10, 25]] *= 10
    found, _ = least_deviation(FEATURES, values, weights=np.ones(29))
    assert found == pytest.approx([5.0, 2.0, 1.0], rel=1e-6)


def test_least_deviation_when_a_negative_one_would_be_best_then_it_is_zero() -> None:
    """A time never falls with the work, in this model."""
    values = 100.0 - FEATURES[:, 1]
    found, deviation = least_deviation(FEATURES, values, weights=np.ones(29))
    assert found == pytest.approx([85.0, 0.0, 0.0], abs=2.0)
    assert deviation > 0


@given(st.integers(0, 2**32 - 1))
def test_least_deviation_when_coefficients_are_nudged_then_it_gets_no_better(seed: int) -> None:
    """It is the optimum: no neighbour that is allowed has a smaller sum."""
    rng = np.random.default_rng(seed)
    values = FEATURES @ rng.uniform(0, 10, 3) * rng.uniform(0.8, 1.25, 29)
    weights = rng.uniform(0.1, 2.0, 29)
    found, least = least_deviation(FEATURES, values, weights=weights)
    for _ in range(20):
        nudged = np.maximum(found * rng.uniform(0.95, 1.05, 3) + rng.normal(0, 0.01, 3), 0.0)
        assert np.abs(FEATURES @ nudged / values - 1) @ weights >= least - 1e-7
