"""The rate at which a pool frees tokens, and what it remembers of it."""

import pytest

from tests.core.support import S
from tokenweir.core.service_rate import ServiceRate
from tokenweir.core.units import Nanos


def busy(rate: ServiceRate, *, tokens_per_s: int, from_s: int, to_s: int) -> None:
    """Close this much in each second, while something does not fit."""
    for second in range(from_s, to_s):
        rate.note_short(now_ns=second * S)
        rate.note_closed(tokens_per_s, now_ns=second * S)


def test_rate_when_nothing_was_closed_then_is_unknown() -> None:
    """Nothing is made up."""
    assert ServiceRate().tokens_per_s(now_ns=0) is None
    assert ServiceRate().tokens_per_s(now_ns=100 * S) is None


def test_rate_when_hinted_then_starts_from_the_hint() -> None:
    """A profile's rate serves until there is a measured one."""
    assert ServiceRate(hint_tokens_per_s=500.0).tokens_per_s(now_ns=0) == 500.0


def test_rate_when_traffic_was_only_light_then_is_unknown() -> None:
    """A pool in which everything fits has not shown what it can do."""
    rate = ServiceRate()
    for second in range(100):
        rate.note_closed(5, now_ns=second * S)
    assert rate.tokens_per_s(now_ns=100 * S) is None


def test_rate_when_a_whole_second_was_saturated_then_is_known() -> None:
    """The second in which saturation began is no measure yet, the one after it is."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=700, from_s=0, to_s=2)
    assert rate.tokens_per_s(now_ns=2 * S - 1) is None
    assert rate.tokens_per_s(now_ns=2 * S) == 700


def test_rate_when_steady_then_is_the_tokens_closed_in_a_second() -> None:
    """A pool that frees 1,000 tokens a second is measured as that."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=1_000, from_s=0, to_s=30)
    assert rate.tokens_per_s(now_ns=30 * S) == pytest.approx(1_000)


def test_rate_when_the_pool_becomes_faster_then_follows_within_the_window() -> None:
    """Ten seconds later the window knows only the new rate."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=100, from_s=0, to_s=20)
    busy(rate, tokens_per_s=900, from_s=20, to_s=30)
    assert rate.tokens_per_s(now_ns=30 * S) == pytest.approx(900)


def test_rate_when_capacity_is_lost_then_the_peak_halves_in_35_s_of_overload() -> None:
    """A pool that has become slow is believed so after about half a minute of trying."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=1_000, from_s=0, to_s=20)
    busy(rate, tokens_per_s=10, from_s=20, to_s=20 + 35)
    measured = rate.tokens_per_s(now_ns=55 * S)
    assert measured is not None
    assert 400 < measured < 600


def test_rate_when_the_pool_is_idle_then_the_peak_stays() -> None:
    """A quiet night says nothing of how fast the pool is."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=1_000, from_s=0, to_s=20)
    assert rate.tokens_per_s(now_ns=86_400 * S) == pytest.approx(1_000, rel=0.05)


def test_rate_when_only_light_traffic_comes_then_the_peak_stays() -> None:
    """A pool that is asked for little gives back little, however fast it is."""
    rate = ServiceRate()
    busy(rate, tokens_per_s=1_000, from_s=0, to_s=20)
    for second in range(20, 1_000):
        rate.note_closed(5, now_ns=second * S)
    assert rate.tokens_per_s(now_ns=1_000 * S) == pytest.approx(1_000, rel=0.05)


def read_every_second(rate: ServiceRate, *, from_s: int, to_s: int) -> None:
    """Look at the rate as a metrics endpoint does."""
    for second in range(from_s, to_s):
        rate.tokens_per_s(now_ns=second * S)


def test_rate_when_looked_at_often_then_is_the_same_as_when_not() -> None:
    """Reading metrics changes no decision."""
    watched, unwatched = ServiceRate(), ServiceRate()
    for rate in (watched, unwatched):
        busy(rate, tokens_per_s=1_000, from_s=0, to_s=20)
        rate.note_short(now_ns=20 * S)
    read_every_second(watched, from_s=20, to_s=500)
    last_ns: Nanos = 500 * S
    assert watched.tokens_per_s(now_ns=last_ns) == unwatched.tokens_per_s(now_ns=last_ns)


def test_rate_when_time_jumps_then_the_window_forgets_all_that_is_older() -> None:
    """One long sleep is the same as many short ones."""
    slept, watched = ServiceRate(), ServiceRate()
    for rate in (slept, watched):
        busy(rate, tokens_per_s=500, from_s=0, to_s=5)
    read_every_second(watched, from_s=5, to_s=3_600)
    for rate in (slept, watched):
        rate.note_closed(100, now_ns=3_600 * S)
        assert rate.tokens_per_s(now_ns=3_601 * S) == 500
