"""The parts of the bound: windows, pools, certificate, knapsack, and what moves it which way."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from tests.study.bound_support import STEP_NS, arrivals_of, engine, naive_program, random_arrivals
from tokenweir.core.errors import ConfigError, ContractError
from tokenweir.core.units import NS_PER_S
from tokenweir.profiles import profile
from tokenweir.sim.results import Slo
from tokenweir.sim.workload import article_workload
from tokenweir.study.bound.bound import KINDS, bounds_of
from tokenweir.study.bound.certificate import certified_bound
from tokenweir.study.bound.knapsack import fractional_knapsack
from tokenweir.study.bound.program import pools_of, program_of
from tokenweir.study.bound.requests import Requests, requests_from, values_of
from tokenweir.study.bound.solver import solve
from tokenweir.study.bound.windows import Buckets, width_for
from tokenweir.study.bound.work import Work, least_work

SLO = Slo(30 * STEP_NS, 2 * STEP_NS)


def drawn(seed: int, *, count: int = 40, slo: Slo = SLO) -> Requests:
    """Draw requests that arrive within a second."""
    arrivals = random_arrivals(random.Random(seed), count, last_ns=NS_PER_S, prompt=60, output=40)
    return requests_from(arrivals, slo)


def work_of(requests: Requests, **changes: float) -> Work:
    """Return the least work on an engine that these requests overload."""
    small = {"step_tokens_max": 8, "chunk_tokens_max": 8, "kv_tokens": 300, **changes}
    return least_work(requests, engine(**small), pauses=True)


# --- windows --------------------------------------------------------------------------------------


def test_buckets_when_a_window_ends_on_an_edge_then_the_next_bucket_is_not_touched() -> None:
    """Windows are rounded outward, and no further."""
    buckets = Buckets(100)
    first = buckets.first(np.array([0, 99, 100, 250]))
    last = buckets.last(np.array([100, 101, 100, 899]), first=first)
    assert first.tolist() == [0, 0, 1, 2]
    assert last.tolist() == [0, 1, 1, 8]


def test_bound_when_buckets_are_wider_then_it_is_not_lower() -> None:
    """Whole multiples of a width round further outward."""
    requests, small = drawn(1), engine(step_tokens_max=8, chunk_tokens_max=8, kv_tokens=300)
    values = [
        bounds_of(requests, small, levels=["L"], width_ns=width * STEP_NS)["L"].figures
        for width in (2, 4, 12, 60)
    ]
    for kind in KINDS:
        figures = [value[kind].value for value in values]
        assert figures == sorted(figures)
        assert figures[0] < figures[-1]


def test_width_when_a_trace_is_long_then_buckets_are_wider() -> None:
    """Two minutes get buckets of a second; five hours get wider ones."""
    fast = profile("article")
    short = requests_from(article_workload(((120.0, 80.0),), seed=1), Slo())
    far = requests_from(article_workload(((18_000.0, 0.5),), seed=1), Slo())
    assert width_for(least_work(short, fast, pauses=True)) == NS_PER_S
    assert width_for(least_work(far, fast, pauses=True)) > NS_PER_S


# --- the program ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_program_when_work_is_pooled_then_its_optimum_is_that_of_the_naive_program(
    seed: int,
) -> None:
    """Pooling by deadline loses nothing and allows nothing, with places, pool and read time."""
    requests = drawn(seed)
    varying = {"kv_token_ns": 4_000.0, "compute_token_ns": 400_000.0, "compute_step_ns": 5_000_000}
    work = work_of(requests, sequences_max=3, **(varying if seed % 2 else {}))
    pools = pools_of(work, Buckets(7 * STEP_NS))
    for kind in KINDS:
        values = values_of(requests, kind=kind)
        optima = [
            float(values @ solve(write(pools, requests_count=requests.count), values).shares)
            for write in (program_of, naive_program)
        ]
        assert optima[0] == pytest.approx(optima[1], abs=1e-7)
        assert optima[0] < 0.99


def test_certificate_when_prices_are_optimal_then_it_meets_the_optimum() -> None:
    """Weak duality for any prices, strong duality for the solver's."""
    requests = drawn(3)
    work = work_of(requests)
    pools = pools_of(work, Buckets(5 * STEP_NS))
    values = values_of(requests, kind="tokens")
    solution = solve(program_of(pools, requests_count=requests.count), values)
    optimum = float(values @ solution.shares)
    proof = certified_bound(pools, values, can_be_good=work.can_be_good, prices=solution.prices)
    assert proof == pytest.approx(optimum, abs=1e-7)
    dice = np.random.default_rng(1)
    for _ in range(50):
        prices = {
            name: price * dice.uniform(0, 2, price.shape) + dice.uniform(0, 0.01, price.shape)
            for name, price in solution.prices.items()
        }
        other = certified_bound(pools, values, can_be_good=work.can_be_good, prices=prices)
        assert other >= optimum - 1e-9


def test_certificate_when_nothing_costs_anything_then_it_is_the_value_of_what_can_be_good() -> None:
    """Without prices everybody is served who could be good alone."""
    requests = drawn(4)
    work = work_of(requests, kv_tokens=80)
    pools = pools_of(work, Buckets(STEP_NS))
    zero = {name: np.zeros(400) for name in work.resources}
    values = values_of(requests, kind="count")
    bound = certified_bound(pools, values, can_be_good=work.can_be_good, prices=zero)
    assert bound == pytest.approx(work.can_be_good.mean())
    assert 0 < bound < 1


def test_knapsack_when_room_ends_inside_an_item_then_it_is_taken_in_part() -> None:
    """Items go in by value per need; free ones always do."""
    shares = fractional_knapsack(
        np.array([1.0, 3.0, 1.0, 1.0]), np.array([2.0, 2.0, 4.0, 0.0]), room=3.0
    )
    assert shares.tolist() == [0.5, 1.0, 0.0, 1.0]


# --- what moves it --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["E", "L", "knapsack"])
@pytest.mark.parametrize(
    ("field", "values"),
    [("step_tokens_max", (8, 12, 16, 40)), ("kv_tokens", (80, 150, 300, 2_000))],
)
def test_bound_when_capacity_grows_then_it_does_not_fall(
    level: str, field: str, values: tuple[int, ...]
) -> None:
    """Monotone in tokens a step and in the pool, and the smallest engine is worth less."""
    small = {"step_tokens_max": 16, "chunk_tokens_max": 8, "kv_tokens": 400}
    for seed in range(3):
        requests = drawn(seed)
        bounds = [
            bounds_of(
                requests, engine(**{**small, field: value}), levels=[level], width_ns=5 * STEP_NS
            )[level]
            for value in values
        ]
        for kind in KINDS:
            figures = [bound.figures[kind].value for bound in bounds]
            assert all(b >= a - 1e-9 for a, b in pairwise(figures))
            assert figures[0] < figures[-1]


@pytest.mark.parametrize("level", ["E", "L", "knapsack"])
def test_bound_when_the_slo_is_looser_then_it_does_not_fall(level: str) -> None:
    """Monotone in the bounds on TTFT and TPOT, and in how long attempts count."""
    small = engine(step_tokens_max=16, chunk_tokens_max=8, kv_tokens=400)
    arrivals = random_arrivals(random.Random(5), 40, last_ns=NS_PER_S, prompt=60, output=40)
    ladders = [
        [requests_from(arrivals, Slo(t * STEP_NS, 2 * STEP_NS)) for t in (5, 10, 30, 90)],
        [requests_from(arrivals, Slo(30 * STEP_NS, t * STEP_NS)) for t in (1, 2, 5, 20)],
        [requests_from(arrivals, SLO, attempts_ns=t * STEP_NS) for t in (0, 20, 90)],
        [requests_from(arrivals, SLO, ends_ns=t * STEP_NS) for t in (50, 100, 200)],
    ]
    for ladder in ladders:
        bounds = [bounds_of(r, small, levels=[level], width_ns=5 * STEP_NS)[level] for r in ladder]
        for kind in KINDS:
            figures = [bound.figures[kind].value for bound in bounds]
            assert all(b >= a - 1e-9 for a, b in pairwise(figures))


def test_bound_when_each_request_has_its_own_ttft_then_the_impossible_ones_are_out() -> None:
    """Two requests of which one has no time for its prompt: half is the bound."""
    arrivals = arrivals_of([(0, 8, 1), (0, 8, 1)])
    requests = requests_from(arrivals, SLO, ttft_ns=[STEP_NS, 2 * STEP_NS])
    bound = bounds_of(requests, engine(), levels=["L"], width_ns=STEP_NS)["L"]
    assert bound.figures["count"].value == pytest.approx(0.5)


def test_requests_when_the_slo_refers_to_an_idle_engine_then_each_has_its_own_ttft() -> None:
    """Three times two chunks of 4 tokens, where that is more than a step; no engine, no bound."""
    arrivals, slo = arrivals_of([(0, 1, 1), (0, 8, 1)]), Slo(4 * STEP_NS, STEP_NS, 3.0)
    requests = requests_from(arrivals, slo, engine=engine())
    assert requests.ttft_ns.tolist() == [4 * STEP_NS, 6 * STEP_NS]
    with pytest.raises(ContractError, match="needs the engine"):
        requests_from(arrivals, slo)


def test_bound_when_load_is_light_then_everything_can_be_good() -> None:
    """A tenth of the capacity: the bound is 1, and no resource binds."""
    requests = drawn(2, count=4)
    for level, bound in bounds_of(
        requests,
        engine(step_tokens_max=200, chunk_tokens_max=64, kv_tokens=9_000),
        levels=["E", "L", "knapsack"],
    ).items():
        for kind in KINDS:
            assert bound.figures[kind].value == pytest.approx(1.0), level
            assert bound.figures[kind].binding is None


def test_bound_when_level_e_is_asked_of_varying_steps_then_it_is_refused() -> None:
    """Level E needs a fixed step; the error says what is allowed."""
    with pytest.raises(ConfigError, match=r"level E needs steps of a fixed length.*L, knapsack"):
        bounds_of(drawn(1), engine(token_ns=1.0), levels=["E"])


def test_bound_when_there_are_no_requests_then_it_is_refused() -> None:
    """Nothing has no goodput."""
    with pytest.raises(ConfigError, match="no requests"):
        requests_from([], SLO)


def test_bound_when_the_article_is_overloaded_then_it_is_where_it_was_published_to_be() -> None:
    """80 requests/s for two minutes: LP-E near 0.73 / 0.57, LP-L near 0.76 / 0.62."""
    requests = requests_from(article_workload(((120.0, 80.0),), seed=1), Slo())
    bounds = bounds_of(requests, profile("article"), levels=["E", "L", "knapsack"])
    expected = {"E": (0.7332, 0.5726), "L": (0.7661, 0.6275), "knapsack": (0.7661, 0.6280)}
    for level, (count, tokens) in expected.items():
        figures = bounds[level].figures
        assert figures["count"].value == pytest.approx(count, abs=2e-4)
        assert figures["tokens"].value == pytest.approx(tokens, abs=2e-4)
