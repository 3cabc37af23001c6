"""Conversions at the edge."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tokenweir.core.units import div_ceil, ns_from_s, s_from_ns


@settings(deadline=None, print_blob=True)
@given(numerator=st.integers(-(10**18), 10**18), denominator=st.integers(1, 10**9))
def test_div_ceil_when_divided_then_is_the_least_that_is_enough(
    numerator: int, denominator: int
) -> None:
    """Rounding is against whoever asks, and exact where it divides."""
    quotient = div_ceil(numerator, denominator)
    assert (quotient - 1) * denominator < numerator <= quotient * denominator


def test_div_ceil_when_the_denominator_is_zero_then_raises() -> None:
    """There is no answer to be rounded."""
    with pytest.raises(ZeroDivisionError):
        div_ceil(1, 0)


@pytest.mark.parametrize(("seconds", "nanos"), [(0.0, 0), (0.1, 10**8), (1.5, 15 * 10**8)])
def test_seconds_when_converted_then_come_back(seconds: float, nanos: int) -> None:
    """A setting in seconds and a time in nanoseconds are the same time."""
    assert ns_from_s(seconds) == nanos
    assert s_from_ns(nanos) == seconds
