"""The outer limit: what shrinks it, what lets it grow, and how fast it finds a new optimum."""

import math
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.core.support import MS, S
from tokenweir.core.aimd import AimdConfig, AimdLimit
from tokenweir.core.errors import ConfigError

TICK = 500 * MS
CONFIG = AimdConfig(in_flight_max=200)


def tick(
    limit: AimdLimit,
    number: int,
    *,
    pressures: tuple[float, ...] = (),
    paces: tuple[float, ...] = (),
    in_flight: int | None = None,
    kv_fraction: float = 0.5,
) -> int:
    """Let one tick pass with such first tokens and paces, and return the limit after it.

    Args:
        limit: Whose.
        number: Of the tick.
        pressures: First tokens, as shares of their bound.
        paces: Streams, as shares of the TPOT bound.
        in_flight: On the replica, as many as allowed where not given.
        kv_fraction: Of the pool in use.
    """
    now_ns = number * TICK
    in_flight = limit.in_flight_limit if in_flight is None else in_flight
    limit.note_use(in_flight, kv_fraction=kv_fraction)
    for pressure in pressures:
        limit.note_first_token(int(pressure * S), unloaded_ns=0, now_ns=now_ns)
    for pace in paces:
        limit.note_pace(pace * 80 * MS, now_ns=now_ns)
    limit.advance(in_flight=in_flight, kv_fraction=kv_fraction, now_ns=now_ns)
    return limit.in_flight_limit


# --- breach ---------------------------------------------------------------------------------------


@pytest.mark.case("CASE-F5")
def test_limit_when_latency_is_constant_at_the_timeout_then_shrinks_to_the_minimum() -> None:
    """A rule that compares latency with its own past would see no change and grow."""
    limit = AimdLimit(CONFIG)
    course = [tick(limit, number, pressures=(1.0,) * 20) for number in range(150)]
    assert course == sorted(course, reverse=True)
    assert course[-1] == CONFIG.in_flight_min


@pytest.mark.case("CASE-F5")
def test_limit_when_all_clients_give_up_at_the_timeout_then_shrinks_to_the_minimum() -> None:
    """Where nobody waits for a first token, the times at which they left are what is known."""
    limit = AimdLimit(CONFIG)
    for number in range(150):
        for _ in range(20):
            limit.note_unanswered(10 * S, unloaded_ns=0, now_ns=number * TICK)
        tick(limit, number)
    assert limit.in_flight_limit == CONFIG.in_flight_min


def test_limit_when_clients_leave_early_then_it_says_nothing() -> None:
    """Who leaves after 10 ms must not pass for a fast answer among slow ones."""
    limit = AimdLimit(CONFIG)
    for _ in range(100):
        limit.note_unanswered(10 * MS, unloaded_ns=0, now_ns=0)
    assert tick(limit, 0, pressures=(0.9,) * 3) == 180


@pytest.mark.parametrize(
    "breach",
    [
        {"pressures": (0.81,) * 10},
        {"pressures": (0.1,) * 40 + (0.81,) * 3},
        {"paces": (0.91,) * 10},
        {"kv_fraction": 0.98},
    ],
)
def test_limit_when_a_signal_is_over_its_bound_then_a_tenth_goes(breach: dict[str, object]) -> None:
    """Each signal does it alone."""
    assert tick(AimdLimit(CONFIG), 0, **breach) == 180  # type: ignore[arg-type]  # a row of them


def test_limit_when_the_engine_preempts_then_a_tenth_goes_once() -> None:
    """A preemption is told once and counts once."""
    limit = AimdLimit(CONFIG)
    limit.note_preemption()
    assert [tick(limit, number) for number in range(6)] == [180] * 5 + [183]


def test_limit_when_a_breach_lasts_then_rests_two_ticks_between_cuts() -> None:
    """What was let in before a cut is still under way, and must not be punished again."""
    limit = AimdLimit(CONFIG)
    course = [tick(limit, number, pressures=(1.0,) * 9) for number in range(7)]
    assert course == [180, 180, 180, 162, 162, 162, 145]


def test_limit_when_little_of_it_was_used_then_cuts_from_what_was() -> None:
    """A limit of 200 over 50 requests would need fourteen cuts to be felt."""
    assert tick(AimdLimit(CONFIG), 0, pressures=(1.0,) * 9, in_flight=50) == 45


def test_limit_when_a_single_stream_is_slow_then_stays() -> None:
    """One request is no percentile, though it tells of its pace twice in a window."""
    limit = AimdLimit(CONFIG)
    assert tick(limit, 0, pressures=(5.0,), paces=(3.0, 3.0)) == 200


def test_limit_when_a_twentieth_was_slow_then_stays() -> None:
    """The p95 is the bound: three of sixty are allowed."""
    limit = AimdLimit(CONFIG)
    assert tick(limit, 0, pressures=(0.1,) * 57 + (0.9,) * 3) == 200


def test_limit_when_long_prompts_take_long_then_it_is_no_overload() -> None:
    """A prompt that takes an idle engine 2 s has taken 5 s: three times 2 s is the bound."""
    limit = AimdLimit(CONFIG)
    for _ in range(20):
        limit.note_first_token(4_700 * MS, unloaded_ns=2 * S, now_ns=0)
    assert tick(limit, 0) == 200
    for _ in range(20):
        limit.note_first_token(4_900 * MS, unloaded_ns=2 * S, now_ns=TICK)
    assert tick(limit, 1) == 180


def test_limit_when_pace_has_no_bound_then_no_pace_shrinks_it() -> None:
    """Where nobody has promised a pace, there is none to break."""
    limit = AimdLimit(AimdConfig(in_flight_max=200, tpot_ns=None))
    assert tick(limit, 0, paces=(9.0,) * 50) == 200


# --- growth ---------------------------------------------------------------------------------------


def shrunk(*, in_flight: int = 100) -> AimdLimit:
    """Return a limit that a breach at so many requests has cut, with its rest over."""
    limit = AimdLimit(CONFIG)
    tick(limit, 0, pressures=(1.0,) * 9, in_flight=in_flight)
    for number in (1, 2):
        tick(limit, number)
    return limit


def test_limit_when_healthy_for_three_ticks_and_used_then_grows_by_a_fiftieth() -> None:
    """Growth waits for three healthy ticks, then comes with each."""
    limit = shrunk()
    course = [tick(limit, number, pressures=(0.5,) * 9) for number in range(3, 8)]
    assert course == [90, 90, 91, 93, 95]


def test_limit_when_small_then_grows_by_one() -> None:
    """A fiftieth of little is nothing."""
    limit = shrunk(in_flight=10)
    assert [tick(limit, number) for number in range(3, 8)] == [9, 9, 10, 11, 12]


def test_limit_when_hardly_used_then_does_not_grow() -> None:
    """A limit that nobody feels has not been tried."""
    limit = shrunk()
    assert [tick(limit, number, in_flight=80) for number in range(3, 9)] == [90] * 6
    assert tick(limit, 9, in_flight=81) == 91


@pytest.mark.parametrize("signal", [{"pressures": (0.7,) * 9}, {"paces": (0.85,) * 9}])
def test_limit_when_between_the_bounds_then_holds(signal: dict[str, object]) -> None:
    """Between good and bad nothing moves, so that nothing swings; and health starts anew."""
    limit = shrunk()
    for number in range(3, 20):
        assert tick(limit, number, **signal) == 90  # type: ignore[arg-type]  # a row of them
    assert [tick(limit, number) for number in range(30, 33)] == [90, 90, 91]


def test_limit_when_healthy_for_long_then_ends_at_the_maximum() -> None:
    """The configured maximum is never passed."""
    limit = shrunk()
    for number in range(3, 400):
        tick(limit, number)
    assert limit.in_flight_limit == 200


def test_limit_when_nothing_happens_for_long_then_one_tick_stands_for_all() -> None:
    """An idle hour does not earn an hour's growth."""
    limit = shrunk()
    tick(limit, 3, in_flight=0)
    assert tick(limit, 7_200) <= 92


def test_kv_limit_when_the_pool_runs_full_then_follows_its_use() -> None:
    """The share of the pool is cut and grown by the same signals as the requests."""
    limit = AimdLimit(CONFIG)
    tick(limit, 0, kv_fraction=0.98)
    assert limit.kv_limit_fraction == pytest.approx(0.882)
    for number in range(1, 5):
        tick(limit, number, kv_fraction=0.88)
    assert limit.kv_limit_fraction == pytest.approx(0.882)
    tick(limit, 5, kv_fraction=0.88)
    assert limit.kv_limit_fraction == pytest.approx(0.882 * 1.02)
    for number in range(6, 100):
        tick(limit, number, kv_fraction=min(0.96, limit.kv_limit_fraction))
    assert limit.kv_limit_fraction == 1.0


# --- step response --------------------------------------------------------------------------------


def follow(optimum: Callable[[float], float], *, seconds: int) -> list[tuple[float, int]]:
    """Run the limit on a plant and return (time in s, limit) of each tick.

    The plant is always full; its p95 is at the breach bound with ``optimum`` requests and goes with
    their number. Samples spread by a tenth to both sides, as a real engine's do.
    """
    limit = AimdLimit(CONFIG)
    course = []
    for number in range(int(seconds * S / TICK)):
        now_s = number * TICK / S
        pressure = 0.8 * limit.in_flight_limit / optimum(now_s)
        spread = tuple(pressure * (0.9 + 0.1 * (index % 21) / 20) for index in range(42))
        course.append((now_s, tick(limit, number, pressures=spread)))
    return course


def test_step_when_capacity_halves_then_the_limit_is_there_within_ten_seconds() -> None:
    """Within a tenth of the new optimum in 10 s, and no swing of more than a fifth later."""
    course = follow(lambda now_s: 120.0 if now_s < 60 else 60.0, seconds=180)
    before = [limit for now_s, limit in course if 30 <= now_s < 60]
    assert min(before) >= 0.8 * 120
    assert max(before) <= 1.1 * 120
    (reached, *_) = [now_s for now_s, limit in course if now_s >= 60 and limit <= 1.1 * 60]
    assert reached - 60 <= 10
    after = [limit for now_s, limit in course if now_s >= 70]
    assert min(after) >= 0.9 * 60 * 0.9
    assert max(after) - min(after) <= 0.2 * 60


def test_step_when_capacity_doubles_then_the_limit_grows_into_it() -> None:
    """Growth is slower than the cut: a fiftieth a tick, to where health ends."""
    course = follow(lambda now_s: 60.0 if now_s < 60 else 120.0, seconds=180)
    late = [limit for now_s, limit in course if now_s >= 100]
    assert min(late) >= 0.7 * 120
    assert max(late) - min(late) <= 0.2 * 120


def test_step_when_capacity_goes_to_and_fro_then_the_limit_stays_within_what_is_right() -> None:
    """A card that throttles every half minute makes no swing larger than its own."""
    course = follow(lambda now_s: 100 + 30 * math.sin(now_s / 30 * math.tau), seconds=600)
    late = [limit for now_s, limit in course if now_s >= 60]
    assert min(late) >= 0.7 * 70
    assert max(late) <= 130


@given(
    st.lists(
        st.tuples(
            st.floats(0, 3), st.floats(0, 3), st.integers(0, 300), st.floats(0, 1), st.booleans()
        ),
        max_size=60,
    )
)
def test_limit_when_anything_happens_then_stays_within_its_bounds(
    rows: list[tuple[float, float, int, float, bool]],
) -> None:
    """Between minimum and maximum, and the same again for the same course."""
    first, second = AimdLimit(CONFIG), AimdLimit(CONFIG)
    for number, (pressure, pace, in_flight, kv_fraction, preempts) in enumerate(rows):
        for limit in (first, second):
            if preempts:
                limit.note_preemption()
            tick(
                limit,
                number,
                pressures=(pressure,) * 3,
                paces=(pace,) * 3,
                in_flight=in_flight,
                kv_fraction=kv_fraction,
            )
        assert CONFIG.in_flight_min <= first.in_flight_limit <= CONFIG.in_flight_max
        assert 0 <= first.kv_limit_fraction <= 1
    assert repr(first) == repr(second)


def test_memory_when_a_flood_of_samples_comes_then_is_bounded() -> None:
    """Samples are a bounded window, whatever happens between two ticks."""
    limit = AimdLimit(CONFIG)
    for _ in range(100_000):
        limit.note_first_token(1, unloaded_ns=0, now_ns=0)
        limit.note_pace(1, now_ns=0)
    assert len(limit._first_tokens) + len(limit._paces) <= 2_048


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tick_ns": 0}, "tick_ns 0 is not allowed, allowed: 1 or more"),
        ({"window_ns": 1}, "window_ns 1 is not allowed, allowed: 500000000 or more"),
        ({"in_flight_min": 0}, "in_flight_min 0 is not allowed, allowed: 1 or more"),
        ({"in_flight_max": 3}, "in_flight_max 3 is not allowed, allowed: 4 or more"),
        ({"tpot_ns": 0}, "tpot_ns 0 is not allowed, allowed: 1 or more"),
        ({"shrink_ratio": 1.0}, "shrink_ratio 1.0 is not allowed, allowed: 0.5 to below 1"),
        ({"grow_fraction": 0.0}, "grow_fraction 0.0 is not allowed, allowed: above 0 to 0.5"),
        (
            {"first_token_unloaded_ratio": 1_001},
            "first_token_unloaded_ratio 1001 is not allowed, allowed: 0 to 1000",
        ),
    ],
)
def test_config_when_out_of_range_then_says_what_is_allowed(
    changes: dict[str, float], message: str
) -> None:
    """A limit that cannot move, or moves without bound, is refused at once."""
    with pytest.raises(ConfigError, match=f"^{message}$"):
        AimdConfig(**changes)  # type: ignore[arg-type]  # one field each
