"""What is kept free: for the spread of predictions, and after preemptions."""

import math
import random

import pytest

from tests.core.support import S
from tokenweir.core.errors import ConfigError
from tokenweir.core.headroom import Headroom, HeadroomConfig

CONFIG = HeadroomConfig()


def taught(errors: list[int], config: HeadroomConfig = CONFIG) -> Headroom:
    """Return what has seen requests turn out larger than reserved by so many tokens."""
    headroom = Headroom(config)
    for error in errors:
        headroom.note_end(reserved_tokens=1_000, used_tokens=1_000 + error)
    return headroom


# --- spread ---------------------------------------------------------------------------------------


def test_spread_when_draws_err_to_both_sides_then_is_the_deviation_of_the_sum() -> None:
    """For n draws that err by a normal 100 tokens, 100 x sqrt n is kept."""
    rng = random.Random(1)
    headroom = taught([round(rng.gauss(0, 100)) for _ in range(2_000)])
    kept = headroom.spread_fraction(25, kv_tokens=10_000) * 10_000
    assert kept == pytest.approx(100 * math.sqrt(25), rel=0.15)


def test_spread_when_the_pool_is_larger_then_is_a_smaller_share_of_it() -> None:
    """Ten times the requests in ten times the pool need a third of the share."""
    headroom = taught([100, -100] * 100)
    few = headroom.spread_fraction(20, kv_tokens=10_000)
    many = headroom.spread_fraction(200, kv_tokens=100_000)
    assert few / many == pytest.approx(math.sqrt(10))


def test_spread_when_everything_is_reserved_in_full_then_is_none() -> None:
    """What can only turn out smaller needs nothing beside its reservation."""
    assert taught([-900, -1, 0] * 100).spread_fraction(50, kv_tokens=1_000) == 0


def test_spread_when_nothing_has_ended_then_is_none() -> None:
    """Before the first completion the prior is large, and that is enough."""
    assert taught([]).spread_fraction(50, kv_tokens=1_000) == 0


def test_spread_when_the_pool_holds_two_requests_then_has_a_maximum() -> None:
    """The share stays usable, however large single requests are."""
    headroom = taught([5_000] * 10)
    assert headroom.spread_fraction(2, kv_tokens=10_000) == CONFIG.spread_fraction_max


def test_spread_when_predictions_get_better_then_falls() -> None:
    """After two thousand right predictions old errors are forgotten."""
    assert taught([500] * 500 + [0] * 2_000).spread_fraction(10, kv_tokens=10_000) < 0.01


# --- preemptions ----------------------------------------------------------------------------------


def test_penalty_when_the_engine_preempts_then_is_one_step_in_five_seconds() -> None:
    """A burst of preemptions is one overrun, and the next one is another."""
    headroom = Headroom(CONFIG)
    assert not headroom.note_preemptions(7, now_ns=0)
    for now_s, total in ((1, 8), (2, 30), (5, 31), (6, 32)):
        assert headroom.note_preemptions(total, now_ns=now_s * S)
    assert headroom.penalty_fraction == pytest.approx(0.04)
    assert headroom.preemptions == 25


def test_penalty_when_preemptions_go_on_then_has_a_maximum() -> None:
    """From 0.97 down to 0.80 and no further: an engine that preempts for others must serve us."""
    headroom = Headroom(CONFIG)
    for number in range(100):
        headroom.note_preemptions(number, now_ns=number * 10 * S)
    assert headroom.penalty_fraction == pytest.approx(0.17)


def test_penalty_when_time_is_clean_then_returns_in_small_steps() -> None:
    """Half a hundredth for each 30 s."""
    headroom = Headroom(CONFIG)
    headroom.note_preemptions(0, now_ns=0)
    headroom.note_preemptions(1, now_ns=S)
    headroom.refresh(now_ns=30 * S)
    assert headroom.penalty_fraction == pytest.approx(0.02)
    headroom.refresh(now_ns=31 * S)
    assert headroom.penalty_fraction == pytest.approx(0.015)
    headroom.refresh(now_ns=100 * S)
    assert headroom.penalty_fraction == pytest.approx(0.005)
    headroom.refresh(now_ns=10_000 * S)
    assert headroom.penalty_fraction == 0


def test_penalty_when_the_engine_starts_again_then_its_smaller_counter_is_no_preemption() -> None:
    """A counter that fell has lost its past, not gained a preemption."""
    headroom = Headroom(CONFIG)
    assert not headroom.note_preemptions(50, now_ns=0)
    assert not headroom.note_preemptions(3, now_ns=S)
    assert headroom.note_preemptions(4, now_ns=2 * S)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spread_ratio": 6}, "spread_ratio 6 is not allowed, allowed: 0 to 5"),
        ({"step_fraction": 0.3}, "step_fraction 0.3 is not allowed, allowed: 0 to 0.2"),
        ({"clean_ns": 0}, "clean_ns 0 is not allowed, allowed: above 0"),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    changes: dict[str, float], message: str
) -> None:
    """What would keep everything free, or nothing for ever, is refused."""
    with pytest.raises(ConfigError, match=f"^{message}$"):
        HeadroomConfig(**changes)  # type: ignore[arg-type]  # one field each
