"""When a refused client is told to come back."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.core.support import MS, FixedRng, S
from tokenweir.core.retry import RETRY_AFTER_NS_MAX, expected_wait_ns, retry_after_ns
from tokenweir.core.units import Nanos

draws = st.floats(0, 1, exclude_max=True)


@settings(deadline=None, print_blob=True)
@given(wait_ns=st.integers(0, 60 * S), draw=draws)
def test_advice_when_the_wait_is_bearable_then_is_never_early_nor_beyond_a_minute(
    wait_ns: Nanos, draw: float
) -> None:
    """At least half a second, never before there is room, a tenth later at most, within 60 s."""
    advised = retry_after_ns(wait_ns, rng=FixedRng(draw))
    assert advised is not None
    floor_ns = max(wait_ns, 500 * MS)
    assert floor_ns <= advised <= min(floor_ns * 11 // 10 + 1, RETRY_AFTER_NS_MAX)


@settings(deadline=None, print_blob=True)
@given(wait_ns=st.integers(60 * S + 1, 10**30), draw=draws)
def test_advice_when_the_wait_is_over_a_minute_then_is_none(wait_ns: Nanos, draw: float) -> None:
    """Common clients obey up to 60 s, so nothing longer is advised."""
    assert retry_after_ns(wait_ns, rng=FixedRng(draw)) is None


@pytest.mark.parametrize("wait_ns", [0, 1, 500 * MS])
def test_advice_when_the_wait_is_short_then_is_half_a_second(wait_ns: Nanos) -> None:
    """Nobody is told to come back at once."""
    assert retry_after_ns(wait_ns, rng=FixedRng()) == 500 * MS


def test_advice_when_the_draw_grows_then_is_spread_to_later_times() -> None:
    """Jitter is one-sided: it moves a return away from the moment of others, never earlier."""
    advised = [retry_after_ns(10 * S, rng=FixedRng(draw)) for draw in (0.0, 0.5, 0.999)]
    assert advised == [10 * S, 10 * S + S // 2, 10 * S + 999 * MS]


def test_wait_when_the_rate_is_known_then_is_backlog_over_rate() -> None:
    """A backlog of 3,000 tokens at 1,500 a second lasts two seconds."""
    assert expected_wait_ns(3_000, rate_tokens_per_s=1_500.0, reserved_tokens=0) == 2 * S


def test_wait_when_the_rate_is_unknown_then_a_backlog_is_taken_as_a_second() -> None:
    """Before anything was served the guess is a second, and nothing where nothing waits."""
    assert expected_wait_ns(3_000, rate_tokens_per_s=None, reserved_tokens=30_000) == S
    assert expected_wait_ns(0, rate_tokens_per_s=None, reserved_tokens=30_000) == 0
    assert expected_wait_ns(7, rate_tokens_per_s=None, reserved_tokens=0) == 7 * S


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 0.5, 1.0])
def test_wait_when_the_rate_is_a_standstill_then_is_long_and_still_a_number(rate: float) -> None:
    """A pool that frees next to nothing gives a long wait, never an overflow."""
    assert expected_wait_ns(10**6, rate_tokens_per_s=rate, reserved_tokens=0) == 10**6 * S
