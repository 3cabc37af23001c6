"""Weights by what tenants ask for."""

from __future__ import annotations

import pytest

from tokenweir.core.tenants import TenantConfig
from tokenweir.sim.traces import Arrival
from tokenweir.study.weights import asked_tokens, weights_of

ASKED = (("large", 900), ("small", 100))


def test_asked_when_summed_then_the_largest_is_first_and_ties_go_by_name() -> None:
    """Prompt and answer, all of a tenant's requests."""
    arrivals = [Arrival(0, 10, 5, "b"), Arrival(1, 1, 1, "c"), Arrival(2, 14, 1, "a")]
    arrivals.append(Arrival(3, 1, 1, "c"))
    assert asked_tokens(arrivals) == (("a", 15), ("b", 15), ("c", 4))


@pytest.mark.parametrize(
    ("power", "large", "small"), [(1.0, 1.8, 0.2), (0.5, 1.342, 0.447), (-0.5, 0.745, 2.236)]
)
def test_weights_when_the_power_grows_then_who_asks_for_more_gets_more(
    power: float, large: float, small: float
) -> None:
    """Below 0 it is the other way round; whoever is not known weighs 1."""
    config = weights_of(ASKED, power=power)
    weights = [config.of(tenant).weight for tenant in ("large", "small", "new")]
    assert weights == [large, small, 1.0]


def test_weights_when_equal_or_nobody_is_known_then_nobody_is_named() -> None:
    """The defaults are the core's own."""
    assert weights_of(ASKED, power=0.0) == TenantConfig()
    assert weights_of((), power=1.0) == TenantConfig()


def test_weights_when_one_asks_for_next_to_nothing_then_its_weight_is_still_allowed() -> None:
    """The core takes none of 0, and none without bound."""
    config = weights_of((("all", 10**9), ("none", 2)), power=1.0)
    assert config.of("none").weight == 1e-3
    assert weights_of((("all", 10**9), ("none", 2)), power=-1.0).of("none").weight == 1e3
