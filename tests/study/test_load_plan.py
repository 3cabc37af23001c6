"""How a trace becomes a load."""

import pytest

from tokenweir.core.errors import ConfigError
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.traces import Arrival
from tokenweir.sim.workload import Surge
from tokenweir.study.load.plan import LoadShape, capacity_rps, plan_requests, rate_for_load

# 1 per second for 1,000 s.
TRACE = [Arrival(second * NS_PER_S, 100 + second, 50) for second in range(1_000)]


def test_plan_when_a_rate_is_given_then_the_mean_rate_of_what_is_sent_is_that() -> None:
    """So many requests as the rate asks for fill the duration."""
    plan = plan_requests(TRACE, LoadShape(rate_rps=20.0, duration_ns=10 * NS_PER_S))
    assert len(plan) == 200
    assert plan[1].due_ns == pytest.approx(NS_PER_S / 20)
    assert plan[-1].due_ns < 10 * NS_PER_S


def test_plan_when_only_a_speed_is_given_then_times_are_divided() -> None:
    """Speed keeps the trace's own pattern."""
    plan = plan_requests(TRACE, LoadShape(speed=4.0, requests_max=9))
    assert [request.due_ns for request in plan] == [n * NS_PER_S // 4 for n in range(9)]


def test_plan_when_a_surge_is_given_then_the_rate_rises_there() -> None:
    """After the step arrivals come faster, and the duration is filled all the same."""
    shape = LoadShape(
        rate_rps=10.0, duration_ns=20 * NS_PER_S, surge=Surge(3.0, start_ns=10 * NS_PER_S)
    )
    plan = plan_requests(TRACE, shape)
    before = sum(request.due_ns < 10 * NS_PER_S for request in plan)
    assert before == 100
    assert len(plan) - before == pytest.approx(300, abs=2)


def test_plan_when_the_first_part_is_skipped_then_it_begins_at_once() -> None:
    """What is left out leaves no silence behind."""
    plan = plan_requests(TRACE, LoadShape(skip_ns=100 * NS_PER_S, requests_max=2))
    assert [(r.due_ns, r.prompt_tokens) for r in plan] == [(0, 200), (NS_PER_S, 201)]


def test_plan_when_lengths_are_scaled_then_declared_maxima_are_too() -> None:
    """A quarter of the lengths with a quarter of the maximum, and never under the true output."""
    shape = LoadShape(requests_max=50, length_ratio=0.25, declaration="mix")
    plan = plan_requests(TRACE, shape)
    assert {r.output_tokens_max for r in plan} == {128, 256, 1_024}
    assert {r.output_tokens for r in plan} == {12}
    assert plan[0].prompt_tokens == 25


def test_plan_when_nothing_is_declared_then_there_is_no_maximum() -> None:
    """``unset`` sends no maximum at all: that is for the route to fill in."""
    plan = plan_requests(TRACE, LoadShape(requests_max=3, declaration="unset"))
    assert [r.output_tokens_max for r in plan] == [None] * 3


def test_plan_when_lengths_are_tiny_then_each_request_can_still_be_made() -> None:
    """A prompt has at least one byte and an answer one token."""
    plan = plan_requests(TRACE, LoadShape(requests_max=1, length_ratio=0.001))
    assert (plan[0].prompt_tokens, plan[0].output_tokens) == (5, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rate_rps": 0.0}, "rate 0 is not allowed"),
        ({"rate_rps": float("nan")}, "rate nan is not allowed"),
        ({"speed": -1.0}, "speed -1 is not allowed"),
        ({"length_ratio": 0.0}, "scale-tokens 0 is not allowed"),
        ({"requests_max": 0}, "requests 0 is not allowed"),
        ({"rate_rps": 1e-300}, "rate 1e-300 is not allowed"),
        ({"rate_rps": float("inf")}, "rate inf is not allowed"),
        ({"rate_rps": 1e-4}, "spread over 2,778 h, allowed: up to 168 h"),
        ({"length_ratio": 1e9}, "scale-tokens 1e.09 is not allowed"),
        ({"length_ratio": 1e3}, "a prompt of 1,001,000 tokens"),
        ({"seed": -1}, "seed -1 is not allowed, allowed: 0 to"),
        ({"declaration": "most"}, "unknown declared maximum 'most'"),
        ({"skip_ns": 2_000 * NS_PER_S}, "skip 2000 s leaves nothing"),
    ],
)
def test_plan_when_a_setting_is_wrong_then_the_error_says_what_is_allowed(
    fields: dict[str, object], message: str
) -> None:
    """Bad numbers never become a load."""
    with pytest.raises(ConfigError, match=message):
        plan_requests(TRACE, LoadShape(**fields))  # type: ignore[arg-type]  # a row of a table


@pytest.mark.parametrize("load", [0.0, 1e-300, float("inf"), float("nan")])
def test_rate_for_load_when_out_of_range_then_the_error_says_what_is_allowed(load: float) -> None:
    """A multiple of capacity has a range."""
    with pytest.raises(ConfigError, match=r"allowed: 0\.001 to 1,000"):
        rate_for_load(TRACE, LoadShape(), load=load, profile=profile("demo"))


def test_rate_for_load_when_applied_then_it_is_that_multiple_of_capacity() -> None:
    """Three times capacity is three times what the engine can do of just these requests."""
    engine = profile("demo")
    shape = LoadShape(duration_ns=10 * NS_PER_S)
    rate = rate_for_load(TRACE, shape, load=3.0, profile=engine)
    plan = plan_requests(TRACE, LoadShape(rate_rps=rate, duration_ns=10 * NS_PER_S))
    assert rate == pytest.approx(3.0 * capacity_rps(plan, engine), rel=0.02)
